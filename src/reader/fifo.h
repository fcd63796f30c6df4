// A queue in one array that grows by doubling and never shrinks: no allocation once it has reached its size.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace dlfs::reader {

template <class T>
class Fifo {
 public:
  bool empty() const noexcept { return head_ == tail_; }
  std::size_t size() const noexcept { return tail_ - head_; }
  T& front() noexcept { return (*this)[0]; }
  const T& front() const noexcept {
    DLFS_CHECK(!empty());
    return ring_[head_ & (ring_.size() - 1)];
  }
  T& back() noexcept { return (*this)[size() - 1]; }
  T& operator[](std::size_t i) noexcept {
    DLFS_CHECK(i < size());
    return ring_[(head_ + i) & (ring_.size() - 1)];
  }
  void push(T value) {
    if (size() == ring_.size()) grow();
    ring_[tail_++ & (ring_.size() - 1)] = std::move(value);
  }
  T pop() noexcept {
    DLFS_CHECK(!empty());
    return std::move(ring_[head_++ & (ring_.size() - 1)]);
  }

 private:
  void grow() {
    std::vector<T> larger(ring_.empty() ? 16 : ring_.size() * 2);
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) larger[i] = std::move((*this)[i]);
    ring_ = std::move(larger);
    head_ = 0;
    tail_ = count;
  }
  std::vector<T> ring_;
  std::size_t head_ = 0, tail_ = 0;
};

}  // namespace dlfs::reader
