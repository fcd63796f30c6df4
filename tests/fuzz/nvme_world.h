// What the fuzzers of whole sides share: a simulated network, a target in it over a small memory device whose bytes are
// known, and bounds on memory and on work.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fuzz_input.h"
#include "nvme/pdu.h"
#include "sim/sim_network.h"
#include "target/server.h"

// The sanitizer's count; absent in builds without it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace dlfs::fuzz {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::size_t kDeviceBytes = 64u << 10;
constexpr const char* kSubnqn = "nqn.2026-01.io.example:fuzz";
constexpr const char* kServerHost = "10.0.0.1";
constexpr std::uint16_t kServerPort = 4420;

// Of memory that nobody wrote; no byte of the device has this value.
constexpr std::byte kUnwritten{0xEE};

// What the device holds. Compared and copied whole: in a build for coverage a loop over bytes is what takes the time.
inline std::span<const std::byte> device_bytes() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> all(kDeviceBytes);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>((i * 31 + i / 509) % 200);
    return all;
  }();
  return bytes;
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// A memory device that outlives the servers, filled anew for each input.
inline void fill_device() {
  static const std::unique_ptr<block::BlockDevice> device =
      block::open_device("mem:fuzz?size=" + std::to_string(kDeviceBytes), {.write = true}).value();
  DLFS_CHECK(block::write_all(*device, 0, device_bytes()).ok());
}

// What was allocated since this was made stays below a bound.
class MemoryBound {
 public:
  void check(std::size_t limit_bytes) const {
    if (__sanitizer_get_current_allocated_bytes == nullptr) return;
    DLFS_CHECK(__sanitizer_get_current_allocated_bytes() < before_ + limit_bytes);
  }

 private:
  std::size_t before_ =
      __sanitizer_get_current_allocated_bytes == nullptr ? 0 : __sanitizer_get_current_allocated_bytes();
};

// A world whose end is a signal, and an actor in it that must come to rest.
class Actor {
 public:
  Actor(sim::World& world, std::function<bool()> step, std::function<std::uint64_t()> next_ns)
      : world_(world), actor_{[this, step = std::move(step)] { return counted(step()); }, std::move(next_ns)} {
    world_.actors.push_back(&actor_);
  }
  ~Actor() { std::erase(world_.actors, &actor_); }
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

 private:
  static constexpr unsigned kMaxRestless = 200'000;
  bool counted(bool moved) {
    restless_ = moved ? restless_ + 1 : 0;
    DLFS_CHECK(restless_ < kMaxRestless);  // a loop that burns a processor
    return moved;
  }
  sim::World& world_;
  unsigned restless_ = 0;
  sim::World::Actor actor_;
};

class ServerInWorld {
 public:
  ServerInWorld(sim::SimNetwork& network, std::uint32_t max_connections)
      : server_(target::Server::create({.listen = {{kServerHost, kServerPort}},
                                        .nqn = kSubnqn,
                                        .namespaces = {{.url = "mem:fuzz"}, {.url = "mem:fuzz", .read_only = true}},
                                        .max_connections = max_connections,
                                        .max_memory_bytes = 4u << 20,
                                        .max_queues = 4,
                                        .max_queue_entries = 32,
                                        .device_depth = 8},
                                       network)
                    .value()),
        actor_(network.world, [this] { return server_->step(0); }, [this] { return server_->next_step_ns(0); }) {}
  target::Server& operator*() { return *server_; }
  target::Server* operator->() { return server_.get(); }

 private:
  std::unique_ptr<target::Server> server_;
  Actor actor_;
};

// The digests that are in a PDU, made right again after its bytes were changed. Nothing when its lengths make no sense.
inline void mend_digests(std::vector<std::byte>& pdu) {
  if (pdu.size() < nvme::kCommonHeaderBytes) return;
  const nvme::CommonHeader header = nvme::decode_common_header(pdu.data());
  if (header.type <= static_cast<std::uint8_t>(nvme::PduType::kC2HTermReq)) return;
  const auto put = [&](std::size_t begin, std::size_t end) {
    if (begin > end || end + nvme::kDigestBytes > pdu.size()) return;
    base::store_le(pdu.data() + end, base::crc32c(std::span<const std::byte>(pdu).subspan(begin, end - begin)));
  };
  if ((header.flags & nvme::kHeaderDigestFlag) != 0) put(0, header.hlen);
  if ((header.flags & nvme::kDataDigestFlag) != 0 && header.pdo != 0) put(header.pdo, pdu.size() - nvme::kDigestBytes);
}

}  // namespace dlfs::fuzz
