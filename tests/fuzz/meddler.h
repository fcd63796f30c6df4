// Stands between initiator and target, passes their PDUs on, and does to them what the input says: changes, drops,
// repeats, delays and reorders them, puts other bytes between them, cuts connections. When the input is used up, all
// passes.
#pragma once

#include <deque>
#include <memory>

#include "nvme_source.h"
#include "nvme_world.h"

namespace dlfs::fuzz {

class Meddler {
 public:
  // Listens on `ports`, and passes on to the server's. `digests`: both are on, so that a flipped bit must be noticed.
  // `repeats`: begins again when the input is used up, so that nothing ever heals.
  Meddler(sim::SimNetwork& network, std::span<const std::byte> input, std::span<const std::uint16_t> ports,
          bool digests, bool repeats);

  // The host was told something that its target never said, in a way that no digest shows.
  bool lied() const noexcept { return lied_; }

 private:
  enum class End : std::uint8_t { kNone, kAfterAll, kNow };
  struct Flow {  // one direction of a connection
    std::vector<std::byte> in, out, held;
    std::uint64_t stalled_until_ns = 0;
    std::size_t stall_at = ~std::size_t{0};  // in `out`: the stall begins when that much of it has gone
    std::uint64_t stall_ns = 0;
    bool to_host = false, tampered = false;
  };
  struct Link {
    Link() { to_host.to_host = true; }
    std::unique_ptr<net::Stream> host, target;  // target: null when the input itself is the target
    Flow to_host, to_target;
    bool standing = false;  // the connection to the target
    End end = End::kNone;
  };

  bool step();
  std::uint64_t next_ns() const noexcept;
  void accept(std::unique_ptr<net::Stream> stream);
  bool step(Link& link);
  bool move(Link& link, net::Stream& from, net::Stream& to, Flow& flow);
  bool send(net::Stream& to, Flow& flow);
  bool speak(Link& link);
  void take_pdus(Link& link, Flow& flow);
  void act(Link& link, Flow& flow, std::vector<std::byte>& pdu);
  void change(Flow& flow, std::vector<std::byte>& pdu, unsigned how, bool mend);
  void put(Flow& flow, std::span<const std::byte> bytes);
  void tamper(Flow& flow, bool noticed);
  bool asks() {  // whether the input has something to say on what comes now
    if (passing_ > 0) return --passing_, false;
    if (source_.empty() && repeats_) source_ = Source(input_);
    return !source_.empty();
  }
  std::size_t place(const std::vector<std::byte>& pdu) {
    const std::uint8_t choice = source_.u8();  // mostly in the header
    return (choice < 0xC0 ? choice % 32u : source_.u16()) % pdu.size();
  }

  sim::SimNetwork& network_;
  std::span<const std::byte> input_;
  Source source_;
  bool digests_, repeats_, lied_ = false;
  unsigned passing_ = 0;  // PDUs, before the input is asked again
  std::vector<std::unique_ptr<net::Listener>> listeners_;
  std::vector<std::unique_ptr<Link>> links_;
  Actor actor_;
};

inline Meddler::Meddler(sim::SimNetwork& network, std::span<const std::byte> input,
                        std::span<const std::uint16_t> ports, bool digests, bool repeats)
    : network_(network),
      input_(input),
      source_(input),
      digests_(digests),
      repeats_(repeats),
      actor_(network.world, [this] { return step(); }, [this] { return next_ns(); }) {
  for (const std::uint16_t port : ports) {
    listeners_.push_back(network.listen(*net::Address::from_number(kServerHost, port)).value());
  }
}

inline bool Meddler::step() {
  bool moved = false;
  for (auto& listener : listeners_) {
    while (auto stream = listener->accept().value()) {
      accept(std::move(stream));
      moved = true;
    }
  }
  for (std::size_t i = 0; i < links_.size(); ++i) moved |= step(*links_[i]);
  std::erase_if(links_, [](const auto& link) {
    return link->end == End::kNow || (link->end == End::kAfterAll && link->to_host.out.empty());
  });
  return moved;
}

inline std::uint64_t Meddler::next_ns() const noexcept {
  std::uint64_t next_ns = ~std::uint64_t{0};
  for (const auto& link : links_) {
    for (const Flow* flow : {&link->to_host, &link->to_target}) {
      if (flow->stalled_until_ns > network_.world.now_ns()) next_ns = std::min(next_ns, flow->stalled_until_ns);
    }
  }
  return next_ns;
}

inline void Meddler::accept(std::unique_ptr<net::Stream> stream) {
  auto link = std::make_unique<Link>();
  link->host = std::move(stream);
  const std::uint8_t how = asks() ? source_.u8() : 0;
  if (how >= 0xF8) return;  // closed at once
  if (how >= 0xE0) {
    tamper(link->to_host, false);
    link->standing = true;
  } else {
    link->target = network_.connect(*net::Address::from_number(kServerHost, kServerPort)).value();
  }
  links_.push_back(std::move(link));
}

inline bool Meddler::step(Link& link) {
  if (link.end == End::kNow) return false;
  if (link.target == nullptr) return speak(link);
  if (!link.standing) {
    const net::Moved state = link.target->finish_connect();
    if (state.state == net::Moved::State::kFailed) link.end = End::kNow;
    link.standing = state.state == net::Moved::State::kSome;
    if (!link.standing) return false;
  }
  bool moved = move(link, *link.host, *link.target, link.to_target);
  if (link.end != End::kNow) moved |= move(link, *link.target, *link.host, link.to_host);
  return moved;
}

inline bool Meddler::move(Link& link, net::Stream& from, net::Stream& to, Flow& flow) {
  constexpr std::size_t kEnough = 64u << 10;
  if (network_.world.now_ns() < flow.stalled_until_ns) return false;
  bool moved = send(to, flow);
  if (link.end == End::kNone && flow.out.size() < kEnough && static_cast<sim::SimStream&>(from).readable()) {
    std::byte bytes[4096];
    const net::Moved got = from.receive(bytes, {});
    if (got.state == net::Moved::State::kSome) {
      flow.in.insert(flow.in.end(), bytes, bytes + got.bytes);
      take_pdus(link, flow);
      moved = true;
    } else if (got.state != net::Moved::State::kWouldBlock) {
      link.end = flow.to_host ? End::kAfterAll : End::kNow;
    }
    if (link.end != End::kNow) moved |= send(to, flow);
  }
  return moved;
}

inline bool Meddler::send(net::Stream& to, Flow& flow) {
  bool moved = false;
  while (!flow.out.empty() && network_.world.now_ns() >= flow.stalled_until_ns) {
    const std::span<const std::byte> piece = std::span(flow.out).first(std::min(flow.out.size(), flow.stall_at));
    std::size_t sent = 0;
    if (!piece.empty()) {
      const net::Moved gone = to.send({&piece, 1});
      if (gone.state == net::Moved::State::kFailed) flow.out.clear();  // the end comes from that stream's receive()
      if (gone.state != net::Moved::State::kSome) break;
      sent = gone.bytes;
      moved = true;
      flow.out.erase(flow.out.begin(), flow.out.begin() + static_cast<std::ptrdiff_t>(sent));
    }
    if (flow.stall_at == ~std::size_t{0}) continue;
    flow.stall_at -= sent;
    if (flow.stall_at > 0) continue;
    flow.stall_at = ~std::size_t{0};
    flow.stalled_until_ns = network_.world.now_ns() + flow.stall_ns;
  }
  return moved;
}

// The input is the target.
inline bool Meddler::speak(Link& link) {
  bool moved = false;
  auto& host = static_cast<sim::SimStream&>(*link.host);
  while (link.end == End::kNone && host.readable()) {
    std::byte bytes[4096];
    const net::Moved got = host.receive(bytes, {});
    if (got.state == net::Moved::State::kWouldBlock) break;
    if (got.state != net::Moved::State::kSome) link.end = End::kNow;
    moved = true;
    if (link.to_host.out.empty() && link.end == End::kNone) {
      const auto words = source_.take(source_.u8());
      put(link.to_host, words);
      if (words.empty()) link.end = End::kAfterAll;
    }
  }
  return send(host, link.to_host) || moved;
}

inline void Meddler::take_pdus(Link& link, Flow& flow) {
  while (flow.in.size() >= nvme::kCommonHeaderBytes && link.end == End::kNone) {
    const nvme::CommonHeader header = nvme::decode_common_header(flow.in.data());
    // Whatever they are told, both sides send whole PDUs of sensible size.
    DLFS_CHECK(header.plen >= header.hlen && header.hlen >= nvme::kCommonHeaderBytes && header.plen <= (2u << 20));
    if (flow.in.size() < header.plen) return;
    std::vector<std::byte> pdu(flow.in.begin(), flow.in.begin() + header.plen);
    flow.in.erase(flow.in.begin(), flow.in.begin() + header.plen);
    const std::vector<std::byte> held = std::exchange(flow.held, {});
    act(link, flow, pdu);
    put(flow, held);
  }
}

inline void Meddler::act(Link& link, Flow& flow, std::vector<std::byte>& pdu) {
  constexpr std::uint64_t kStall_ns = 20 * kMs;
  if (!asks()) return put(flow, pdu);
  const std::uint8_t what = source_.u8();
  if (what < 0x80) {
    passing_ = what;
    return put(flow, pdu);
  }
  const unsigned how = what & 0x0Fu;
  if (how < 8) {
    change(flow, pdu, how, (what & 0x10u) != 0);
    return put(flow, pdu);
  }
  switch (how) {
    case 8:  // dropped
      return tamper(flow, false);
    case 9:  // twice
      tamper(flow, false);
      put(flow, pdu);
      return put(flow, pdu);
    case 10:  // behind the next
      tamper(flow, false);
      flow.held = std::move(pdu);
      return;
    case 11:
      link.end = (what & 0x10u) != 0 ? End::kNow : End::kAfterAll;
      return;
    case 12:
      network_.reset_all();
      link.end = End::kNow;
      return;
    case 13:  // a pause within the PDU
      put(flow, pdu);
      flow.stall_at = flow.out.size() - source_.u8() % pdu.size();
      flow.stall_ns = source_.u8() * kStall_ns;
      return;
    case 14:  // silence
      put(flow, pdu);
      flow.stall_at = flow.out.size();
      flow.stall_ns = 3'600 * sim::kSecond;
      return;
    default:
      put(flow, pdu);
      flow.stalled_until_ns = network_.world.now_ns() + source_.u8() * kStall_ns;
      return;
  }
}

inline void Meddler::change(Flow& flow, std::vector<std::byte>& pdu, unsigned how, bool mend) {
  const auto type = static_cast<unsigned>(pdu[0]);
  const bool digested = digests_ && type > static_cast<unsigned>(nvme::PduType::kC2HTermReq);
  tamper(flow, how == 0 && !mend && digested);
  const std::size_t at = place(pdu);
  switch (how) {
    case 0:
      pdu[at] ^= static_cast<std::byte>(source_.u8());
      break;
    case 1:
    case 2:
    case 3: {
      const auto bytes = source_.take(how == 3 ? 8 : how * 2);
      std::copy_n(bytes.begin(), std::min(bytes.size(), pdu.size() - at),
                  pdu.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    }
    case 4:
      pdu.resize(at);
      break;
    case 5: {  // before it, or into it
      const auto bytes = source_.take(source_.u8());
      pdu.insert(pdu.begin() + static_cast<std::ptrdiff_t>(mend ? 0 : at), bytes.begin(), bytes.end());
      mend = false;
      break;
    }
    case 6: {
      const auto bytes = source_.take(source_.u8());
      pdu.assign(bytes.begin(), bytes.end());
      break;
    }
    default: {  // another status of a response, another command
      const std::uint16_t value = source_.u16();
      const bool response = type == static_cast<unsigned>(nvme::PduType::kCapsuleResp);
      const std::size_t field = response ? nvme::kCommonHeaderBytes + 14 : at;
      if (field + 2 <= pdu.size()) base::store_le(pdu.data() + field, value);
      mend = true;
      break;
    }
  }
  if (mend) mend_digests(pdu);
}

// From here on no byte to the host looks as if nobody had written it.
inline void Meddler::tamper(Flow& flow, bool noticed) {
  flow.tampered = true;
  lied_ |= !noticed;
}

inline void Meddler::put(Flow& flow, std::span<const std::byte> bytes) {
  const std::size_t begin = flow.out.size();
  flow.out.insert(flow.out.end(), bytes.begin(), bytes.end());
  if (!flow.tampered || !flow.to_host || bytes.empty()) return;
  if (std::memchr(bytes.data(), static_cast<int>(kUnwritten), bytes.size()) == nullptr) return;
  std::replace(flow.out.begin() + static_cast<std::ptrdiff_t>(begin), flow.out.end(), kUnwritten, std::byte{0xEF});
}

}  // namespace dlfs::fuzz
