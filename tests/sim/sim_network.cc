#include "sim/sim_network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "nvme/pdu.h"

namespace dlfs::sim {
namespace {

using net::Moved;

constexpr std::size_t kWindowBytes = 256u << 10;
constexpr std::uint64_t kLatency_ns = 20'000;

}  // namespace

// ---- streams ----

SimStream::~SimStream() {
  in().closed = true;  // nobody reads any more
  out().closed = true;
  network_.world.expect(network_.world.now_ns() + kLatency_ns);
}

bool SimStream::readable() const noexcept {
  if (wire_->reset) return true;
  if (wire_->connected_at_ns == 0 || network_.world.now_ns() < wire_->connected_at_ns) return false;
  if (wire_->refused) return true;
  const Pipe& pipe = in();
  if (!pipe.chunks.empty()) return pipe.chunks.front().at_ns <= network_.world.now_ns();
  return pipe.closed;
}

bool SimStream::writable() const noexcept {
  if (wire_->reset) return true;
  if (wire_->connected_at_ns == 0 || network_.world.now_ns() < wire_->connected_at_ns) return false;
  if (wire_->refused) return true;
  return out().queued_bytes < kWindowBytes || out().closed;
}

Moved SimStream::finish_connect() noexcept {
  if (wire_->refused && network_.world.now_ns() >= wire_->connected_at_ns)
    return {.state = Moved::State::kFailed, .errno_value = ECONNREFUSED};
  if (wire_->reset) return {.state = Moved::State::kFailed, .errno_value = ECONNRESET};
  if (wire_->connected_at_ns == 0 || network_.world.now_ns() < wire_->connected_at_ns) return {};
  return {.state = Moved::State::kSome};
}

Moved SimStream::receive(std::span<std::byte> first, std::span<std::byte> second) noexcept {
  World& world = network_.world;
  if (!wire_->reset && world.chance(network_.faults.reset)) {
    world.note("a connection was reset");
    wire_->reset = true;
  }
  if (wire_->reset) return {.state = Moved::State::kFailed, .errno_value = ECONNRESET};
  Pipe& pipe = in();
  std::size_t room = first.size() + second.size(), moved = 0;
  if (room > 1 && world.chance(0.2)) room = 1 + world.prng.below(room);  // cut anywhere
  while (moved < room && !pipe.chunks.empty() && pipe.chunks.front().at_ns <= world.now_ns()) {
    Pipe::Chunk& chunk = pipe.chunks.front();
    std::size_t count = std::min(room - moved, chunk.bytes.size() - chunk.begin);
    const bool into_first = moved < first.size();
    std::byte* to = into_first ? first.data() + moved : second.data() + (moved - first.size());
    if (into_first) count = std::min(count, first.size() - moved);
    std::memcpy(to, chunk.bytes.data() + chunk.begin, count);
    if (network_.digests && pipe.passed_bytes >= nvme::kIcBytes && world.chance(network_.faults.flip)) {
      to[world.prng.below(count)] ^= static_cast<std::byte>(1u << world.prng.below(8));
      world.note("a bit flipped");
    }
    chunk.begin += count;
    moved += count;
    pipe.passed_bytes += count;
    pipe.queued_bytes -= count;
    if (chunk.begin == chunk.bytes.size()) pipe.chunks.pop_front();
  }
  if (moved > 0) world.progress();
  if (moved > 0) return {.state = Moved::State::kSome, .bytes = moved};
  if (pipe.chunks.empty() && pipe.closed) return {.state = Moved::State::kClosed};
  return {};
}

Moved SimStream::send(std::span<const std::span<const std::byte>> pieces) noexcept {
  World& world = network_.world;
  Pipe& pipe = out();
  if (wire_->reset || pipe.closed) return {.state = Moved::State::kFailed, .errno_value = ECONNRESET};
  if (pipe.queued_bytes >= kWindowBytes) return {};
  std::size_t room = kWindowBytes - pipe.queued_bytes, sent = 0;
  Pipe::Chunk chunk;
  for (const auto& piece : pieces) {
    const std::size_t count = std::min(room - sent, piece.size());
    chunk.bytes.insert(chunk.bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
    sent += count;
    if (sent == room) break;
  }
  if (sent == 0) return {};
  world.progress();
  chunk.at_ns = world.now_ns() + kLatency_ns + sent / 4;  // about 4 GB/s
  if (world.chance(network_.faults.stall)) chunk.at_ns += world.prng.below(network_.faults.stall_ns);
  if (network_.silent.contains(wire_->server.port()))
    return {.state = Moved::State::kSome, .bytes = sent};  // into nothing
  chunk.at_ns = std::max(chunk.at_ns, pipe.last_at_ns);    // in order within a connection
  pipe.last_at_ns = chunk.at_ns;
  world.expect(chunk.at_ns);
  pipe.queued_bytes += sent;
  pipe.chunks.push_back(std::move(chunk));
  return {.state = Moved::State::kSome, .bytes = sent};
}

// ---- listeners ----

SimListener::~SimListener() {
  network_.listeners.erase(at_.text());
  for (auto& wire : waiting) wire->reset = true;
}

bool SimListener::readable() const noexcept {
  return !waiting.empty() && waiting.front()->connected_at_ns <= network_.world.now_ns();
}

Result<std::unique_ptr<net::Stream>> SimListener::accept() {
  if (!readable()) return std::unique_ptr<net::Stream>();
  auto wire = std::move(waiting.front());
  waiting.pop_front();
  return std::unique_ptr<net::Stream>(std::make_unique<SimStream>(network_, std::move(wire), false));
}

// ---- pollers ----

Result<void> SimPoller::watch(net::Stream& stream, std::uint64_t tag, Interest interest) {
  auto& watched = streams_[&stream];
  if (watched.stream == nullptr) watched.number = next_number_++;
  watched.stream = static_cast<SimStream*>(&stream);
  watched.tag = tag;
  watched.interest = interest;
  return {};
}

Result<void> SimPoller::watch(net::Listener& listener, std::uint64_t tag) {
  listeners_[&listener] = {static_cast<SimListener*>(&listener), tag};
  return {};
}

std::size_t SimPoller::collect(std::span<Ready> into) noexcept {
  // In the order in which they were first watched, not of addresses: one seed, one run.
  std::vector<const Watched*> ordered;
  for (const auto& [stream, watched] : streams_) ordered.push_back(&watched);
  std::sort(ordered.begin(), ordered.end(), [](const Watched* a, const Watched* b) { return a->number < b->number; });
  std::size_t count = 0;
  for (const Watched* watched : ordered) {
    const bool readable = watched->interest.readable && watched->stream->readable();
    const bool writable = watched->interest.writable && watched->stream->writable();
    if ((readable || writable) && count < into.size()) into[count++] = {watched->tag, readable, writable};
  }
  for (const auto& [listener, watched] : listeners_) {
    if (watched.first->readable() && count < into.size()) into[count++] = {watched.second, true, false};
  }
  return count;
}

std::size_t SimPoller::wait(std::span<Ready> into, std::chrono::nanoseconds longest) noexcept {
  World& world = network_.world;
  std::size_t count = collect(into);
  if (longest.count() > 0) world.spun("a poller");
  world.pass(300);
  if (count == 0 && longest.count() > 0 && !woken_) {
    const auto most = static_cast<std::uint64_t>(std::min<std::int64_t>(longest.count(), 3'600'000'000'000));
    const std::uint64_t until_ns = std::min(world.now_ns() + most, std::max(timer_ns_, world.now_ns()));
    world.run(until_ns, [&] { return woken_ || (count = collect(into)) > 0; });
  }
  woken_ = false;
  if (world.now_ns() >= timer_ns_) timer_ns_ = ~std::uint64_t{0};
  return count;
}

// ---- the network ----

Result<std::vector<net::Address>> SimNetwork::resolve(const net::Endpoint& endpoint) {
  auto address = net::Address::from_number(endpoint.host, endpoint.port);
  if (!address.ok()) return std::move(address).error();
  return std::vector{*address};
}

Result<std::unique_ptr<net::Stream>> SimNetwork::connect(const net::Address& to) {
  auto wire = std::make_shared<Wire>();
  wire->server = to;
  wire->client = *net::Address::from_number("10.9.9.9", next_port++);
  const auto found = listeners.find(to.text());
  const std::uint64_t at_ns = world.now_ns() + 2 * kLatency_ns;
  if (silent.contains(to.port())) {
    // no answer at all
  } else if (found == listeners.end() || world.chance(faults.refuse)) {
    wire->refused = true;
    wire->connected_at_ns = at_ns;
  } else {
    wire->connected_at_ns = at_ns;
    found->second->waiting.push_back(wire);
  }
  world.expect(at_ns);
  std::erase_if(wires, [](const auto& one) { return one.expired(); });
  wires.push_back(wire);
  return std::unique_ptr<net::Stream>(std::make_unique<SimStream>(*this, std::move(wire), true));
}

Result<std::unique_ptr<net::Listener>> SimNetwork::listen(const net::Address& at) {
  if (listeners.contains(at.text())) return base::make_error(Code::kBusy, "{} is taken", at.text());
  auto listener = std::make_unique<SimListener>(*this, at);
  listeners[at.text()] = listener.get();
  return std::unique_ptr<net::Listener>(std::move(listener));
}

void SimNetwork::reset_all() {
  for (const auto& one : wires) {
    if (const auto wire = one.lock()) wire->reset = true;
  }
  world.expect(world.now_ns() + 1);
}

}  // namespace dlfs::sim
