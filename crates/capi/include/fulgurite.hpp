// Fulgurite for C++17: flash as the memory of containers of the standard library. docs/c.md explains
// it.
#ifndef FULGURITE_HPP
#define FULGURITE_HPP

#include <fulgurite.h>

#include <cstddef>
#include <memory_resource>
#include <new>

namespace fulgurite {

// Memory of an allocator, for containers of std::pmr. The allocator lives as long as the process, so
// this may be copied and dropped at any time. Threads may share it.
class memory_resource : public std::pmr::memory_resource {
  public:
    explicit memory_resource(fulgurite_allocator *allocator) noexcept : allocator_(allocator) {}

    fulgurite_allocator *allocator() const noexcept { return allocator_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        void *block = fulgurite_aligned_alloc(allocator_, alignment, bytes);
        if (block == nullptr) {
            throw std::bad_alloc();
        }
        return block;
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override {
        static_cast<void>(fulgurite_free(allocator_, block));
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->allocator_ == allocator_;
    }

    fulgurite_allocator *allocator_;
};

} // namespace fulgurite

#endif
