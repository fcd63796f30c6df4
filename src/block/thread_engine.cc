// The threads engine: blocking calls on a few threads, for systems without io_uring.
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "block/descriptor.h"
#include "block/engine.h"

namespace dlfs::block {
namespace {

// A queue of at most `capacity` items in memory that is taken once.
template <class T>
class Ring {
 public:
  explicit Ring(std::size_t capacity) : items_(capacity) {}
  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  void push(const T& item) noexcept { items_[(head_ + size_++) % items_.size()] = item; }
  T pop() noexcept {
    const T item = items_[head_];
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

int run(int fd, const Piece& piece) noexcept {
  ssize_t result = 0;
  switch (piece.kind) {
    case PieceKind::kNothing:
      break;
    case PieceKind::kFlush:
      result = fdatasync(fd);
      break;
    case PieceKind::kRead:
      result = pread(fd, piece.data, piece.length_bytes, static_cast<off_t>(piece.offset_bytes));
      break;
    case PieceKind::kWrite:
      result = pwrite(fd, piece.data, piece.length_bytes, static_cast<off_t>(piece.offset_bytes));
      break;
  }
  return result < 0 ? -errno : static_cast<int>(result);
}

// What the user's thread and the workers share.
struct Pool {
  Pool(int file, Descriptor event_fd, std::uint32_t depth)
      : fd(file), event(std::move(event_fd)), waiting(depth), finished(depth) {}

  void work() noexcept {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return stop || !waiting.empty(); });
      if (waiting.empty()) return;
      const Piece piece = waiting.pop();
      lock.unlock();
      const int result = run(fd, piece);
      lock.lock();
      if (finished.empty()) signal();
      finished.push({piece.token, result});
      finished_count.store(finished.size(), std::memory_order_relaxed);
    }
  }

  // An eventfd with a count below 2^64 takes and gives its 8 bytes at once.
  void signal() noexcept {
    const std::uint64_t one = 1;
    while (write(event.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
  void quieten() noexcept {
    std::uint64_t count = 0;
    // Non-blocking, whatever the analyser thinks of read() under a lock.
    while (read(event.get(), &count, sizeof count) < 0 && errno == EINTR) {  // NOLINT
    }
  }

  int fd;
  Descriptor event;
  std::mutex mutex;
  std::condition_variable wake;
  Ring<Piece> waiting;
  Ring<Finished> finished;
  std::atomic<std::size_t> finished_count{0};  // lets reap() return without the lock
  bool stop = false;
  std::vector<std::thread> threads;
};

class ThreadEngine final : public Engine {
 public:
  ThreadEngine(std::unique_ptr<Pool> pool, std::uint32_t depth) : pool_(std::move(pool)), staged_(depth) {}

  ~ThreadEngine() override {
    if (!pool_) return;
    {
      const std::lock_guard lock(pool_->mutex);
      pool_->stop = true;
    }
    pool_->wake.notify_all();
    for (std::thread& thread : pool_->threads) thread.join();
  }

  // Signals stay with the threads of the program: workers block them all. 0 or an errno.
  int start(std::uint32_t count) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    pool_->threads.reserve(count);
    while (error == 0 && pool_->threads.size() < count) {
      try {
        pool_->threads.emplace_back([pool = pool_.get()] { pool->work(); });
      } catch (const std::system_error& failure) {  // std::thread has no other way to say so
        error = failure.code().value();
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return pool_->threads.empty() ? error : 0;
  }

  const char* name() const noexcept override { return "threads"; }
  void queue(const Piece& piece) noexcept override { staged_.push(piece); }

  void kick() noexcept override {
    const std::size_t count = staged_.size();
    if (count == 0) return;
    {
      const std::lock_guard lock(pool_->mutex);
      while (!staged_.empty()) pool_->waiting.push(staged_.pop());
    }
    for (std::size_t i = 0; i < count && i < pool_->threads.size(); ++i) pool_->wake.notify_one();
  }

  std::size_t unstarted() const noexcept override { return staged_.size(); }

  std::size_t reap(std::span<Finished> into) noexcept override {
    if (pool_->finished_count.load(std::memory_order_relaxed) == 0) return 0;
    const std::lock_guard lock(pool_->mutex);
    std::size_t count = 0;
    while (count < into.size() && !pool_->finished.empty()) into[count++] = pool_->finished.pop();
    pool_->finished_count.store(pool_->finished.size(), std::memory_order_relaxed);
    if (count > 0 && pool_->finished.empty()) pool_->quieten();
    return count;
  }

  int wait_descriptor() const noexcept override { return pool_->event.get(); }
  void register_memory(std::span<std::byte>) noexcept override {}

  // The workers do not exist in the child and its copy of their lock may be held for ever: the copy is left behind, all
  // but its descriptor.
  void abandon() noexcept override {
    pool_->event = Descriptor();
    [[maybe_unused]] const Pool* left_behind = pool_.release();
  }

 private:
  std::unique_ptr<Pool> pool_;
  Ring<Piece> staged_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_thread_engine(int fd, std::uint32_t depth) {
  Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return base::errno_error(errno, "cannot make an eventfd for a pool of I/O threads");
  auto engine = std::make_unique<ThreadEngine>(std::make_unique<Pool>(fd, std::move(event), depth), depth);
  if (const int error = engine->start(std::min(depth, kPoolThreads)); error != 0) {
    Error failure = base::errno_error(error, "cannot start a thread for file I/O");
    failure.code = Code::kOutOfMemory;
    return failure;
  }
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace dlfs::block
