/* Takes N MiB in blocks of 4000 bytes, writes to each, and checks them. Prints what it found. With a second
 * argument, it frees a block twice then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    size_t blocks = strtoull(count > 1 ? words[1] : "1", NULL, 10) << 8, wrong = 0;
    unsigned char **all = malloc(blocks * sizeof *all);
    for (size_t block = 0; block < blocks; block++) {
        all[block] = malloc(4000);
        if (all[block] == NULL) {
            puts("no memory");
            return 3;
        }
        memset(all[block], (int)(block % 251), 4000);
    }
    for (size_t block = 0; block < blocks; block++)
        for (size_t at = 0; at < 4000; at += 333)
            wrong += all[block][at] != block % 251;
    printf("%zu blocks, %zu wrong\n", blocks, wrong);
    fflush(stdout);
    for (int times = 0; count > 2 && times < 2; times++)
        free(all[3]);
    return wrong != 0;
}
