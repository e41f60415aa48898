// Counts words into a pool, in C++: handles that free themselves, errors as exceptions, and a scan in
// the order of the words.
//
//   c++ -std=c++17 words.cpp $(pkg-config --cflags --libs fulgurite) -o words
//   echo some words and some more | ./words my.pool      (run it twice: the counts add up)
#include <fulgurite.h>

#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

void check(fulgurite_status status, const char *what) {
    if (status != FULGURITE_OK) {
        throw std::runtime_error(std::string(what) + ": " + fulgurite_last_message());
    }
}

using Options = std::unique_ptr<fulgurite_options, decltype(&fulgurite_options_free)>;
using Blobs = std::unique_ptr<fulgurite_blobs, decltype(&fulgurite_blobs_free)>;

// What a job needs. An exception must not leave its callback, so it is kept and thrown on the other
// side.
struct Counting {
    fulgurite_blobs *counts;
    std::string word;
    std::exception_ptr failed;
};

void count(fulgurite_context *context, Counting &counting) {
    const auto &word = counting.word;
    std::uint64_t number = 0;
    std::size_t length = 0;
    auto found = fulgurite_blobs_get(context, counting.counts, word.data(), word.size(), &number, sizeof number, &length);
    if (found != FULGURITE_NOT_FOUND) {
        check(found, "get");
    }
    number += 1;
    check(fulgurite_blobs_put(context, counting.counts, word.data(), word.size(), &number, sizeof number), "put");
}

extern "C" int count_in_a_job(fulgurite_context *context, void *user) {
    auto &counting = *static_cast<Counting *>(user);
    try {
        count(context, counting);
        return 0;
    } catch (...) {
        counting.failed = std::current_exception();
        return 1;
    }
}

extern "C" int print(void *, const void *key, std::size_t key_length, const void *value, std::size_t) {
    std::uint64_t number;
    std::memcpy(&number, value, sizeof number);
    std::cout << std::string(static_cast<const char *>(key), key_length) << ' ' << number << '\n';
    return 1;
}

void run(const char *path) {
    Options options(fulgurite_options_new(), fulgurite_options_free);
    check(fulgurite_options_pool(options.get(), path), "pool");
    check(fulgurite_options_size(options.get(), "32M"), "size");
    check(fulgurite_options_dram(options.get(), "16M"), "dram");
    fulgurite_pool *opened = nullptr;
    check(fulgurite_open(options.get(), &opened), "open");
    // Closed also when something is thrown. Its errors count only in good order.
    std::unique_ptr<fulgurite_pool, decltype(&fulgurite_abandon)> pool(opened, fulgurite_abandon);
    fulgurite_blobs *made = nullptr;
    check(fulgurite_blobs_open(pool.get(), "counts", 1 << 16, 8 << 20, &made), "blobs");
    Blobs counts(made, fulgurite_blobs_free);

    Counting counting{counts.get(), {}, nullptr};
    while (std::cin >> counting.word) {
        check(fulgurite_run(pool.get(), count_in_a_job, &counting, nullptr), "job");
        if (counting.failed) {
            std::rethrow_exception(counting.failed);
        }
    }
    check(fulgurite_blobs_scan(nullptr, counts.get(), nullptr, 0, SIZE_MAX, print, nullptr, nullptr), "scan");
    counts.reset();
    check(fulgurite_close(pool.get()), "close");
    static_cast<void>(pool.release());
}

} // namespace

int main(int argc, char **argv) try {
    if (argc != 2) {
        std::cerr << "usage: words POOL\n";
        return 2;
    }
    run(argv[1]);
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
