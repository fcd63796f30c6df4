// DLFS_TRY: the early return that Result<T> needs until the language has one.
#pragma once

#include "dlfs/result.h"

#define DLFS_CONCAT_INNER(a, b) a##b
#define DLFS_CONCAT(a, b) DLFS_CONCAT_INNER(a, b)
// DLFS_TRY(expr): return the error of a Result<void> expression.
#define DLFS_TRY(expr)                                          \
  do {                                                          \
    if (auto dlfs_try_result = (expr); !dlfs_try_result.ok()) { \
      return std::move(dlfs_try_result).error();                \
    }                                                           \
  } while (false)
// DLFS_TRY_ASSIGN(auto x, expr): bind the value, or return the error.
#define DLFS_TRY_ASSIGN(declaration, expr) DLFS_TRY_ASSIGN_INNER(DLFS_CONCAT(dlfs_try_, __LINE__), declaration, expr)
#define DLFS_TRY_ASSIGN_INNER(temporary, declaration, expr) \
  auto temporary = (expr);                                  \
  if (!temporary.ok()) return std::move(temporary).error(); \
  declaration = std::move(temporary).value()
