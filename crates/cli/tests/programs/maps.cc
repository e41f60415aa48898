// Two threads fill and change maps of small objects. A child after fork checks both and changes one, while the parent
// changes the other. Prints the sizes of the maps, how many values are wrong, and the child's status. Arguments: how often a
// thread changes its map, and how long values are at the most.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using Map = std::map<long, std::string>;

static long longest = 90;
static std::string value(long key) {
    return std::to_string(key * 7) + std::string((unsigned long)(key % longest), 'x');
}

static unsigned long wrong_of(const Map &map) {
    unsigned long wrong = 0;
    for (auto &[key, held] : map)
        wrong += held != value(key);
    return wrong;
}

static void fill(Map &map, long count, unsigned long seed) {
    for (long i = 0; i < count; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        long key = (long)((seed >> 33) % (unsigned long)(count * 2));
        if (i % 5 == 4)
            map.erase(map.begin());
        else
            map[key] = value(key);
    }
}

int main(int words, char **word) {
    const long count = words > 1 ? atol(word[1]) : 40000;
    longest = words > 2 ? atol(word[2]) : longest;
    Map one, two;
    std::thread first([&] { fill(one, count, 1); }), second([&] { fill(two, count, 2); });
    first.join();
    second.join();
    // The C library looks at its open files in the child, before anything else does.
    FILE *file = fopen("/dev/null", "w");
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        unsigned long wrong = wrong_of(one) + wrong_of(two);
        one.clear();
        fill(one, 1000, 3);
        wrong += wrong_of(one);
        fprintf(file, "%lu", wrong);
        fclose(file);
        _exit(wrong != 0);
    }
    fill(two, count / 4, 4);
    waitpid(pid, &status, 0);
    printf("%zu and %zu, %lu and %lu wrong, %d\n", one.size(), two.size(), wrong_of(one), wrong_of(two), status);
    fclose(file);
}
