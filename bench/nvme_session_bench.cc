// The cost of the NVMe/TCP host session alone, without sockets: reads answered from memory, a queue's depth at a time.
// Items are reads; 1/items_per_second is the processor time of one. Arguments: bytes of a read, data digest.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "base/endian.h"
#include "nvme/host_session.h"

namespace dlfs::nvme {
namespace {

constexpr std::uint32_t kDepth = 128;
constexpr std::uint64_t kNow = 1'000'000;

std::vector<std::byte> drain(HostSession& session) {
  std::vector<std::byte> all;
  ConstBytes pieces[64];
  while (const std::size_t count = session.gather(pieces)) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      all.insert(all.end(), pieces[i].begin(), pieces[i].end());
      bytes += pieces[i].size();
    }
    session.sent(bytes);
  }
  return all;
}

void feed(HostSession& session, ConstBytes from) {
  while (!from.empty()) {
    const Want want = session.want();
    const std::size_t direct = std::min(want.direct.size(), from.size());
    if (direct > 0) std::memcpy(want.direct.data(), from.data(), direct);
    const std::size_t staged = std::min(want.stage.size(), from.size() - direct);
    if (staged > 0) std::memcpy(want.stage.data(), from.data() + direct, staged);
    session.received(direct + staged, kNow);
    from = from.subspan(direct + staged);
  }
}

void append(std::vector<std::byte>& to, ConstBytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

// ICResp and the answer to Connect.
void shake_hands(HostSession& session, bool digest) {
  session.start(kNow);
  drain(session);
  std::byte header[kMaxBeforeData];
  const HeaderBuffer to(header, kMaxBeforeData);
  feed(session, {header, encode(IcResp{.data_digest = digest, .max_h2c_data_bytes = 1u << 20}, to)});
  const auto connect = drain(session);
  const auto cid = base::load_le<std::uint16_t>(connect.data() + kCommonHeaderBytes + 2);
  feed(session, {header, encode_response({.result = 1, .cid = cid}, {}, to)});
}

void host_reads(benchmark::State& state) {
  const auto size = static_cast<std::uint32_t>(state.range(0));
  const bool digest = state.range(1) != 0;
  HostSession session(
      {.subnqn = "nqn.bench", .hostnqn = "nqn.host", .qid = 1, .cntlid = 1, .depth = kDepth, .data_digest = digest});
  shake_hands(session, digest);
  if (session.state() != SessionState::kReady) return state.SkipWithError("the handshake failed");
  std::vector<std::byte> memory(std::size_t{kDepth} * size), payload(size), answers;
  const std::uint32_t crc = base::crc32c(payload);
  const Framing framing{.data_digest = digest};
  std::vector<Completion> done(kDepth);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < kDepth; ++i) {
      const ReadWrite read{.nsid = 1, .lba = i, .blocks = size / 512};
      session.submit({.sqe = read.to_sqe(), .read_into = {memory.data() + std::size_t{i} * size, size}, .tag = i},
                     kNow);
    }
    state.PauseTiming();
    const auto commands = drain(session);
    answers.clear();
    for (std::size_t at = 0; at < commands.size(); at += kCapsuleCmdBytes) {
      const auto cid = base::load_le<std::uint16_t>(commands.data() + at + kCommonHeaderBytes + 2);
      std::byte header[kMaxBeforeData];
      const C2HData pdu{.cid = cid, .length_bytes = size, .last = true, .success = true};
      append(answers, {header, encode(pdu, framing, HeaderBuffer(header, kMaxBeforeData))});
      append(answers, payload);
      std::byte sum[4];
      base::store_le(sum, crc);
      if (digest) append(answers, sum);
    }
    state.ResumeTiming();
    feed(session, answers);
    if (session.take(done) != kDepth) return state.SkipWithError("commands are missing");
  }
  state.SetItemsProcessed(state.iterations() * kDepth);
  state.SetBytesProcessed(state.iterations() * kDepth * size);
}
BENCHMARK(host_reads)->ArgsProduct({{512, 4096, 131072}, {0, 1}});

}  // namespace
}  // namespace dlfs::nvme

BENCHMARK_MAIN();
