#include "api/impl.h"
#include "base/error.h"

namespace dlfs {

namespace api {

Schema from_layout(const layout::Schema& schema) {
  Schema out;
  out.attributes = schema.attributes;
  out.fields.reserve(schema.fields.size());
  for (const layout::Field& field : schema.fields) {
    Field& to = out.fields.emplace_back();
    to.name = field.name;
    to.kind = static_cast<Kind>(field.kind);
    if (field.kind == layout::Kind::kTensor) {
      to.dtype = layout::dtype_name(field.dtype);
      to.shape = field.shape;
    }
  }
  return out;
}

Result<layout::Schema> to_layout(const Schema& schema) {
  layout::Schema out;
  out.attributes = schema.attributes;
  out.fields.reserve(schema.fields.size());
  for (const Field& field : schema.fields) {
    layout::Field& to = out.fields.emplace_back();
    to.name = field.name;
    to.kind = static_cast<layout::Kind>(field.kind);
    if (field.kind == Kind::kTensor) {
      auto dtype = layout::dtype_of_name(field.dtype);
      if (!dtype.ok()) {
        return base::make_error(Code::kInvalidArgument, "field '{}': {}", base::escape(field.name),
                                dtype.error().message);
      }
      to.dtype = *dtype;
      to.shape = field.shape;
    } else if (!field.dtype.empty() || !field.shape.empty()) {
      return base::make_error(
          Code::kInvalidArgument,
          "field '{}' has a dtype or shape but is not a tensor: make its kind tensor, or leave both empty",
          base::escape(field.name));
    }
  }
  DLFS_TRY(layout::validate(out));
  return out;
}

static_assert(static_cast<int>(Kind::kBytes) == static_cast<int>(layout::Kind::kBytes));
static_assert(static_cast<int>(Kind::kText) == static_cast<int>(layout::Kind::kText));
static_assert(static_cast<int>(Kind::kTensor) == static_cast<int>(layout::Kind::kTensor));

}  // namespace api

Result<Schema> Schema::parse(std::string_view text) {
  DLFS_TRY_ASSIGN(const layout::Schema schema, layout::parse_schema(text));
  return api::from_layout(schema);
}

std::string Schema::to_string() const {
  auto schema = api::to_layout(*this);
  return schema.ok() ? schema->to_string() : "invalid schema: " + schema.error().message;
}

}  // namespace dlfs
