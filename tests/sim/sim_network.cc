#include "sim/sim_network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "nvme/pdu.h"

namespace dlfs::sim {
namespace {

using net::Moved;

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::size_t kWindowBytes = 256u << 10;
constexpr std::uint64_t kLatency_ns = 20'000, kNsPer4Bytes = 1, kCall_ns = 200;
constexpr double kCut = 0.2;  // of receives and sends: moves a part only

}  // namespace

// ---- streams ----

// The end travels behind the bytes; where nothing travels, the other side does not hear of it.
SimStream::~SimStream() {
  World& world = network_.world;
  const bool to_server = client_;
  if (out().lost || network_.silence_on(*wire_, to_server) != nullptr) {
    out().lost = in().lost = true;
    return;
  }
  out().closed_at_ns = std::max(world.now_ns() + kLatency_ns, out().last_at_ns);
  in().closed_at_ns = world.now_ns();  // who sends there is told so
  world.expect(out().closed_at_ns);
}

bool SimStream::connected() const noexcept { return network_.world.now_ns() >= wire_->connected_at_ns; }
bool SimStream::ended(const Pipe& pipe) const noexcept { return network_.world.now_ns() >= pipe.closed_at_ns; }

bool SimStream::readable() const noexcept {
  if (wire_->reset) return true;
  if (!connected()) return false;
  if (wire_->refused) return true;
  const Pipe& pipe = in();
  return pipe.chunks.empty() ? ended(pipe) : pipe.chunks.front().at_ns <= network_.world.now_ns();
}

bool SimStream::writable() const noexcept {
  if (wire_->reset) return true;
  if (!connected()) return false;
  return wire_->refused || out().queued_bytes < kWindowBytes || ended(out());
}

Moved SimStream::finish_connect() noexcept {
  if (wire_->reset) return {.state = Moved::State::kFailed, .errno_value = ECONNRESET};
  if (!connected()) return {};
  if (wire_->refused) return {.state = Moved::State::kFailed, .errno_value = ECONNREFUSED};
  return {.state = Moved::State::kSome};
}

void SimStream::flip_a_bit(std::span<std::byte> bytes) noexcept {
  World& world = network_.world;
  bytes[world.prng.below(bytes.size())] ^= static_cast<std::byte>(1u << world.prng.below(8));
  world.befell("a bit flipped");
}

std::size_t SimStream::take(std::span<std::byte> first, std::span<std::byte> second, std::size_t room) noexcept {
  World& world = network_.world;
  Pipe& pipe = in();
  std::size_t moved = 0;
  while (moved < room && !pipe.chunks.empty() && pipe.chunks.front().at_ns <= world.now_ns()) {
    Pipe::Chunk& chunk = pipe.chunks.front();
    const bool into_first = moved < first.size();
    const std::span<std::byte> to = into_first ? first.subspan(moved) : second.subspan(moved - first.size());
    const std::size_t count = std::min({room - moved, chunk.bytes.size() - chunk.begin, to.size()});
    std::memcpy(to.data(), chunk.bytes.data() + chunk.begin, count);
    // Digests begin with the first PDU behind ICReq and ICResp.
    if (network_.flips && pipe.passed_bytes >= nvme::kIcBytes && world.chance(network_.faults.flip))
      flip_a_bit(to.first(count));
    chunk.begin += count;
    moved += count;
    pipe.passed_bytes += count;
    pipe.queued_bytes -= count;
    if (chunk.begin == chunk.bytes.size()) pipe.chunks.pop_front();
  }
  return moved;
}

Moved SimStream::receive(std::span<std::byte> first, std::span<std::byte> second) noexcept {
  World& world = network_.world;
  world.pass(kCall_ns);
  if (!wire_->reset && world.chance(network_.faults.reset)) {
    world.befell("a connection was reset");
    wire_->reset = true;
  }
  if (wire_->reset) return {.state = Moved::State::kFailed, .errno_value = ECONNRESET};
  std::size_t room = first.size() + second.size();
  if (room > 1 && world.chance(kCut)) room = 1 + world.prng.below(room);
  if (const std::size_t moved = take(first, second, room); moved > 0) {
    world.progress();
    world.mark("receive", moved);
    return {.state = Moved::State::kSome, .bytes = moved};
  }
  return {.state = in().chunks.empty() && ended(in()) ? Moved::State::kClosed : Moved::State::kWouldBlock};
}

Moved SimStream::send(std::span<const std::span<const std::byte>> pieces) noexcept {
  World& world = network_.world;
  Pipe& pipe = out();
  world.pass(kCall_ns);
  if (wire_->reset || ended(pipe)) return {.state = Moved::State::kFailed, .errno_value = ECONNRESET};
  if (pipe.queued_bytes >= kWindowBytes) return {};
  std::size_t room = kWindowBytes - pipe.queued_bytes, sent = 0;
  if (room > 1 && world.chance(kCut)) room = 1 + world.prng.below(room);
  Pipe::Chunk chunk;
  for (const auto& piece : pieces) {
    const std::size_t count = std::min(room - sent, piece.size());
    chunk.bytes.insert(chunk.bytes.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
    sent += count;
    if (sent == room) break;
  }
  if (sent == 0) return {};
  world.progress();
  const Moved moved{.state = Moved::State::kSome, .bytes = sent};
  const Silence* silence = network_.silence_on(*wire_, client_);
  pipe.lost |= silence != nullptr && !silence->sent_again;
  if (pipe.lost) {
    world.mark("bytes into nothing", sent);
    return moved;
  }
  chunk.at_ns = world.now_ns() + kLatency_ns + sent / 4 * kNsPer4Bytes;
  if (world.chance(network_.faults.stall)) {
    world.mark("stall", sent);
    chunk.at_ns += world.prng.below(network_.faults.stall_ns);
  }
  chunk.at_ns = silence != nullptr ? kNever : std::max(chunk.at_ns, pipe.last_at_ns);  // in order within a connection
  if (pipe.last_at_ns == kNever) chunk.at_ns = kNever;
  pipe.last_at_ns = chunk.at_ns;
  if (chunk.at_ns != kNever) world.expect(chunk.at_ns);
  pipe.queued_bytes += sent;
  pipe.chunks.push_back(std::move(chunk));
  return moved;
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
  Watched& watched = streams_[&stream];
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
  // In the order in which they were first watched, not of addresses: one seed, one story.
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
  if (count == 0 && longest.count() > 0 && !woken_) {
    const auto most = static_cast<std::uint64_t>(std::min<std::int64_t>(longest.count(), 3600 * kSecond));
    const std::uint64_t until_ns = std::min(world.now_ns() + most, std::max(timer_ns_, world.now_ns()));
    world.run(until_ns, [&] { return woken_ || (count = collect(into)) > 0; });
  }
  woken_ = false;
  if (world.now_ns() >= timer_ns_) timer_ns_ = kNever;
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
  wire->client = *net::Address::from_number("10.9.9.9", next_port_++);
  const auto found = listeners.find(to.text());
  const std::uint64_t at_ns = world.now_ns() + 2 * kLatency_ns;
  if (silent_.contains(to.port())) {
    world.mark("connection attempt into nothing", to.port());
  } else if (cut || found == listeners.end() || world.chance(faults.refuse)) {
    world.mark("connection refused", to.port());
    wire->refused = true;
    wire->connected_at_ns = at_ns;
  } else {
    wire->connected_at_ns = at_ns;
    found->second->waiting.push_back(wire);
  }
  world.expect(at_ns);
  std::erase_if(wires_, [](const auto& one) { return one.expired(); });
  wires_.push_back(wire);
  return std::unique_ptr<net::Stream>(std::make_unique<SimStream>(*this, std::move(wire), true));
}

Result<std::unique_ptr<net::Listener>> SimNetwork::listen(const net::Address& at) {
  if (listeners.contains(at.text())) return base::make_error(Code::kBusy, "{} is taken", at.text());
  auto listener = std::make_unique<SimListener>(*this, at);
  listeners[at.text()] = listener.get();
  return std::unique_ptr<net::Listener>(std::move(listener));
}

void SimNetwork::reset_all() {
  for (const auto& one : wires_) {
    if (const auto wire = one.lock()) wire->reset = true;
  }
  world.expect(world.now_ns() + 1);
}

const Silence* SimNetwork::silence_on(const Wire& wire, bool to_server) const noexcept {
  const auto found = silent_.find(wire.server.port());
  if (found == silent_.end()) return nullptr;
  return (to_server ? found->second.to_server : found->second.to_client) ? &found->second : nullptr;
}

// What TCP kept is sent again.
void SimNetwork::lift_silence(std::uint16_t port) {
  if (silent_.erase(port) == 0) return;
  const std::uint64_t at_ns = world.now_ns() + kLatency_ns;
  for (const auto& one : wires_) {
    const auto wire = one.lock();
    if (wire == nullptr || wire->server.port() != port) continue;
    for (Pipe* pipe : {&wire->to_server, &wire->to_client}) {
      if (pipe->last_at_ns != kNever) continue;
      pipe->last_at_ns = at_ns;
      for (Pipe::Chunk& chunk : pipe->chunks) chunk.at_ns = std::min(chunk.at_ns, at_ns);
    }
  }
  world.expect(at_ns);
}

void SimNetwork::lift_silences() {
  while (!silent_.empty()) lift_silence(silent_.begin()->first);
}

}  // namespace dlfs::sim
