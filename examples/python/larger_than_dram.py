"""A table of numbers that is larger than the DRAM it may use.

  fulgurite run --dram 256M --flash /mnt/nvme -- python3 larger_than_dram.py
  fulgurite run --dram 256M --flash /mnt/nvme --flash-size 20G -- \
      python3 larger_than_dram.py 16384

Nothing here knows of flash: numpy asks the C library for memory. The argument is the size of the
table in MiB, 1024 unless it is given.
"""

import sys

import numpy as np

ROWS_AT_A_TIME = 4096


def main() -> None:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    columns = 256
    rows = (mib << 20) // (columns * 8)
    table = np.empty((rows, columns))

    # In order, a block at a time: flash reads ahead, and each page is written once.
    for start in range(0, rows, ROWS_AT_A_TIME):
        block = table[start : start + ROWS_AT_A_TIME]
        block[:] = np.arange(start, start + len(block))[:, None] + np.arange(columns) / columns

    sums = table.sum(axis=0)
    wanted = rows * (rows - 1) / 2 + rows * np.arange(columns) / columns
    assert np.allclose(sums, wanted), "a sum is wrong"

    # Rows at random: each is read from flash, if DRAM does not have it.
    some = np.random.default_rng(1).integers(0, rows, 1000)
    assert np.array_equal(table[some, 0], some), "a row is another one"
    print(f"{table.nbytes >> 20} MiB: {columns} sums and {len(some)} rows at random are right")


if __name__ == "__main__":
    main()
