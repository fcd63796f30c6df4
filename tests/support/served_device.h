// A target in this process over a memory device, for tests of both sides.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "block/device.h"
#include "target/server.h"

namespace dlfs::testing_support {

inline std::string unique_memory_name() {
  static std::atomic<int> serial{0};
  return "served-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
}

// Serves on a free port of loopback, or on `port` again after a stop. The bytes outlive the server.
class ServedDevice {
 public:
  explicit ServedDevice(std::uint64_t size_bytes = 8u << 20)
      : name_(unique_memory_name()),
        keeper_(block::open_device("mem:" + name_ + "?size=" + std::to_string(size_bytes), {.write = true}).value()) {
    options_.nqn = "nqn.2026-01.io.example:" + name_;
    options_.namespaces = {{.url = "mem:" + name_}};
    options_.listen = {{"127.0.0.1", 0}};
  }
  ~ServedDevice() { stop(); }

  target::ServerOptions& options() { return options_; }

  void start() {
    auto made = target::Server::create(options_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    server_ = std::move(made).value();
    ASSERT_TRUE(server_->start().ok());
    remember();
  }
  // Turned by a thread of the test that can stand still, as a frozen process does.
  void start_by_hand() {
    server_ = target::Server::create(options_).value();
    remember();
    turner_ = std::thread([this] {
      while (!stop_turning_) {
        if (frozen_ || !server_->step(0)) std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
  void freeze(bool frozen) { frozen_ = frozen; }
  void stop() {
    stop_turning_ = true;
    if (turner_.joinable()) turner_.join();
    stop_turning_ = false;
    frozen_ = false;
    server_.reset();
  }

  target::Server& server() { return *server_; }
  block::BlockDevice& bytes() { return *keeper_; }
  const std::string& name() const { return name_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(options_.listen[0].port); }
  std::string url(const std::string& options = "") const {
    return "nvme-tcp://" + endpoint() + "/" + options_.nqn + "?nsid=1" + options;
  }

 private:
  void remember() { options_.listen[0].port = server_->addresses()[0].port(); }

  std::string name_;
  std::unique_ptr<block::BlockDevice> keeper_;
  target::ServerOptions options_;
  std::unique_ptr<target::Server> server_;
  std::thread turner_;
  std::atomic<bool> frozen_{false}, stop_turning_{false};
};

}  // namespace dlfs::testing_support
