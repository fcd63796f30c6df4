// The baseline of directory_bench: the published design (Zhu et al., CLUSTER 2019), an AVL tree in memory with one node
// a sample that holds the hashed key and 16 bytes of metadata. Nodes come from one pool, which is kinder to it than an
// allocation each.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace dlfs::bench {

class AvlTree {
 public:
  struct Node {
    std::uint64_t key = 0;
    std::array<std::uint64_t, 2> metadata{};  // node, offset, length and a cached bit
    Node *left = nullptr, *right = nullptr;
    int height = 1;
  };

  explicit AvlTree(std::size_t capacity) { nodes_.reserve(capacity); }  // the pool never moves

  void insert(std::uint64_t key, std::array<std::uint64_t, 2> metadata) {
    nodes_.push_back({key, metadata, nullptr, nullptr, 1});
    root_ = insert(root_, &nodes_.back());
  }

  const Node* find(std::uint64_t key) const noexcept {
    const Node* node = root_;
    while (node != nullptr && node->key != key) node = key < node->key ? node->left : node->right;
    return node;
  }

  std::uint64_t bytes() const noexcept { return nodes_.size() * sizeof(Node); }
  int height() const noexcept { return height(root_); }

 private:
  static int height(const Node* node) noexcept { return node == nullptr ? 0 : node->height; }
  static void update(Node* node) noexcept { node->height = 1 + std::max(height(node->left), height(node->right)); }

  static Node* rotate_right(Node* node) noexcept {
    Node* top = node->left;
    node->left = top->right;
    top->right = node;
    update(node);
    update(top);
    return top;
  }
  static Node* rotate_left(Node* node) noexcept {
    Node* top = node->right;
    node->right = top->left;
    top->left = node;
    update(node);
    update(top);
    return top;
  }
  static Node* balance(Node* node) noexcept {
    update(node);
    const int lean = height(node->left) - height(node->right);
    if (lean > 1) {
      if (height(node->left->left) < height(node->left->right)) node->left = rotate_left(node->left);
      return rotate_right(node);
    }
    if (lean < -1) {
      if (height(node->right->right) < height(node->right->left)) node->right = rotate_right(node->right);
      return rotate_left(node);
    }
    return node;
  }
  static Node* insert(Node* node, Node* added) noexcept {
    if (node == nullptr) return added;
    Node*& child = added->key < node->key ? node->left : node->right;
    child = insert(child, added);
    return balance(node);
  }

  std::vector<Node> nodes_;
  Node* root_ = nullptr;
};

}  // namespace dlfs::bench
