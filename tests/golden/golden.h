// Reads the golden bytes beside this header: hex, '#' comments, and 00*N for N zero bytes.
#pragma once

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace dlfs::golden {

inline std::vector<std::byte> load(const std::string& name) {
  std::vector<std::byte> out;
  std::ifstream file(std::string(DLFS_GOLDEN_DIR) + "/" + name + ".hex");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with("00*")) {
        out.resize(out.size() + std::stoul(word.substr(3)));
        continue;
      }
      for (std::size_t i = 0; i + 1 < word.size(); i += 2)
        out.push_back(static_cast<std::byte>(std::stoul(word.substr(i, 2), nullptr, 16)));
    }
  }
  return out;
}

}  // namespace dlfs::golden
