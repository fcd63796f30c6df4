// Reads tests/golden/nvme_*.hex; the grammar is described at the top of nvme_pdus.hex.
#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstddef>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace dlfs::nvme::test {

using Octets = std::vector<std::byte>;
using Golden = std::map<std::string, Octets>;

inline std::size_t number(std::string_view text, int base) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  EXPECT_TRUE(error == std::errc{} && end == text.data() + text.size()) << "not a number: " << text;
  return value;
}

inline void append_token(Octets& out, const std::string& token) {
  if (token[0] == '@') {
    out.resize(number(std::string_view(token).substr(1), 10));
    return;
  }
  const std::size_t star = token.find('*');
  const std::size_t count = star == std::string::npos ? 1 : number(std::string_view(token).substr(star + 1), 10);
  out.insert(out.end(), count, static_cast<std::byte>(number(std::string_view(token).substr(0, 2), 16)));
}

inline void append_line(Golden& golden, std::string& name, std::string_view line) {
  std::size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string_view::npos && line[at] != '#') {
    if (line[at] == '"') {
      const std::size_t end = line.find('"', at + 1);
      for (const char c : line.substr(at + 1, end - at - 1)) golden[name].push_back(static_cast<std::byte>(c));
      at = end + 1;
      continue;
    }
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string token(line.substr(at, end - at));
    if (token[0] == '[') {
      name = token.substr(1, token.size() - 2);
      golden[name];
    } else {
      append_token(golden[name], token);
    }
    at = end;
  }
}

inline Golden read_golden(const std::string& file) {
  Golden golden;
  std::ifstream in(std::string(DLFS_GOLDEN_DIRECTORY) + "/" + file);
  EXPECT_TRUE(in) << "cannot read " << file;
  std::string line, name;
  while (std::getline(in, line)) append_line(golden, name, line);
  return golden;
}

inline Octets octets(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }
template <std::size_t N>
std::span<const std::byte, N> exactly(const Octets& bytes) {
  EXPECT_EQ(bytes.size(), N);
  return std::span<const std::byte, N>(bytes.data(), N);
}

}  // namespace dlfs::nvme::test
