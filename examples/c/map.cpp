// A map of the standard library in memory that is larger than its DRAM.
//
//   c++ -std=c++17 map.cpp $(pkg-config --cflags --libs fulgurite) -o map
//   ./map flash.tmp      (a file that is created, and gone afterwards)
#include <fulgurite.hpp>

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: map FLASH\n";
        return 2;
    }
    fulgurite_options *options = fulgurite_options_new();
    fulgurite_allocator *allocator = nullptr;
    bool started = fulgurite_options_flat(options, argv[1]) == FULGURITE_OK &&
                   fulgurite_options_size(options, "64M") == FULGURITE_OK &&
                   fulgurite_options_dram(options, "24M") == FULGURITE_OK &&
                   fulgurite_allocator_start(options, &allocator) == FULGURITE_OK;
    fulgurite_options_free(options);
    if (!started) {
        std::cerr << fulgurite_last_message() << '\n';
        return 1;
    }
    fulgurite::memory_resource flash(allocator);
    const std::uint64_t keys = 150000; // some 30 MiB
    std::pmr::map<std::uint64_t, std::pmr::string> names(&flash);
    for (std::uint64_t key = 0; key < keys; key++) {
        names.emplace(key * 7919 % keys, std::string(100, static_cast<char>('a' + key % 26)));
    }
    std::uint64_t right = 0, expected = 0;
    for (const auto &[key, name] : names) {
        right += key == expected++ && name.size() == 100 && fulgurite_owns(allocator, name.data());
    }
    std::cout << right << " names in order\n";
    names.clear();
    std::pmr::vector<std::uint64_t> numbers(1000, 7, &flash);
    std::cout << (fulgurite_owns(allocator, numbers.data()) ? "a vector next to them\n" : "a vector elsewhere\n");
    return right == keys ? 0 : 1;
}
