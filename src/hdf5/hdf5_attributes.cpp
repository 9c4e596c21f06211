// The attributes of Hdf5Object.
#include <hdf5.h>

#include <algorithm>

#include "hdf5/hdf5_check.h"
#include "hdf5/hdf5_file.h"

namespace megatron {

namespace {

constexpr std::size_t kMostText = 60000;  ///< an attribute of HDF5 is stored in 64 KiB at most
constexpr std::size_t kMostValues = 4096;

Hdf5Handle text_type(std::size_t bytes) {
  Hdf5Handle type(HDF5_CHECK(ErrorKind::internal, "", H5Tcopy(H5T_C_S1)), H5Tclose);
  HDF5_CHECK(ErrorKind::internal, "", H5Tset_size(type.id(), std::max<std::size_t>(1, bytes)));
  HDF5_CHECK(ErrorKind::internal, "", H5Tset_strpad(type.id(), H5T_STR_NULLPAD));
  HDF5_CHECK(ErrorKind::internal, "", H5Tset_cset(type.id(), H5T_CSET_UTF8));
  return type;
}

/// Creates the attribute, or takes the one that is there, and writes it. A rank-1 attribute if `count` > 0, else
/// scalar.
void write(hid_t object, ErrorKind kind, const std::string& where, const std::string& name, hid_t type,
           std::size_t count, const void* value) {
  Hdf5Handle attribute;
  if (HDF5_CHECK(kind, where, H5Aexists(object, name.c_str())) > 0) {
    attribute = Hdf5Handle(HDF5_CHECK(kind, where, H5Aopen(object, name.c_str(), H5P_DEFAULT)), H5Aclose);
    Hdf5Handle old_type(HDF5_CHECK(kind, where, H5Aget_type(attribute.id())), H5Tclose);
    Hdf5Handle old_space(HDF5_CHECK(kind, where, H5Aget_space(attribute.id())), H5Sclose);
    internal_check(H5Tequal(old_type.id(), type) > 0 && H5Sget_simple_extent_npoints(old_space.id()) ==
                                                            static_cast<hssize_t>(std::max<std::size_t>(1, count)),
                   "attribute overwritten by one of another type or size");
  } else {
    const hsize_t extent = count;
    Hdf5Handle space(HDF5_CHECK(kind, where, count > 0 ? H5Screate_simple(1, &extent, nullptr) : H5Screate(H5S_SCALAR)),
                     H5Sclose);
    attribute = Hdf5Handle(
        HDF5_CHECK(kind, where, H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT)),
        H5Aclose);
  }
  HDF5_CHECK(kind, where, H5Awrite(attribute.id(), type, value));
}

/// An attribute opened for reading, its class and number of values checked.
struct Opened {
  Hdf5Handle attribute, type;
  std::size_t count = 1;
};

Opened open(hid_t object, ErrorKind kind, const std::string& where, const std::string& name, H5T_class_t cls) {
  verify(HDF5_CHECK(kind, where, H5Aexists(object, name.c_str())) > 0, kind, "{}: has no attribute {}", where, name);
  Opened result;
  result.attribute = Hdf5Handle(HDF5_CHECK(kind, where, H5Aopen(object, name.c_str(), H5P_DEFAULT)), H5Aclose);
  result.type = Hdf5Handle(HDF5_CHECK(kind, where, H5Aget_type(result.attribute.id())), H5Tclose);
  Hdf5Handle space(HDF5_CHECK(kind, where, H5Aget_space(result.attribute.id())), H5Sclose);
  const hssize_t points = H5Sget_simple_extent_npoints(space.id());
  const bool good = H5Tget_class(result.type.id()) == cls && points >= 1 &&
                    points <= static_cast<hssize_t>(kMostValues) && H5Sget_simple_extent_ndims(space.id()) <= 1;
  verify(good, kind, "{}: attribute {} is not what it should be (class {}, {} values)", where, name,
         static_cast<int>(H5Tget_class(result.type.id())), points);
  result.count = static_cast<std::size_t>(points);
  return result;
}

}  // namespace

std::string Hdf5Object::where() const {
  return name_.empty() ? path_ : fmt::format("{}: /{}", path_, name_);
}

bool Hdf5Object::has_attribute(const std::string& name) const {
  const auto lock = lock_hdf5();
  return HDF5_CHECK(kind_, where(), H5Aexists(handle_.id(), name.c_str())) > 0;
}

void Hdf5Object::write_attribute(const std::string& name, std::uint64_t value) {
  const auto lock = lock_hdf5();
  write(handle_.id(), kind_, where(), name, H5T_STD_U64LE, 0, &value);
}

void Hdf5Object::write_attribute(const std::string& name, double value) {
  const auto lock = lock_hdf5();
  write(handle_.id(), kind_, where(), name, H5T_IEEE_F64LE, 0, &value);
}

void Hdf5Object::write_attribute(const std::string& name, std::string_view text) {
  internal_check(text.size() <= kMostText && text.find('\0') == std::string_view::npos,
                 "text that no attribute can hold");
  const auto lock = lock_hdf5();
  Hdf5Handle type = text_type(text.size());
  const std::string copy(text);  // ends with the NUL that an empty text is stored as
  write(handle_.id(), kind_, where(), name, type.id(), 0, copy.c_str());
}

void Hdf5Object::write_attribute(const std::string& name, const std::vector<std::uint64_t>& values) {
  internal_check(!values.empty() && values.size() <= kMostValues, "an attribute holds 1 to 4096 values");
  const auto lock = lock_hdf5();
  write(handle_.id(), kind_, where(), name, H5T_STD_U64LE, values.size(), values.data());
}

std::uint64_t Hdf5Object::read_u64(const std::string& name) const {
  const std::vector<std::uint64_t> values = read_u64s(name);
  verify(values.size() == 1, kind_, "{}: attribute {} has {} values instead of one", where(), name, values.size());
  return values[0];
}

std::vector<std::uint64_t> Hdf5Object::read_u64s(const std::string& name) const {
  const auto lock = lock_hdf5();
  Opened opened = open(handle_.id(), kind_, where(), name, H5T_INTEGER);
  const std::size_t bytes = H5Tget_size(opened.type.id());
  verify(bytes >= 1 && bytes <= 8, kind_, "{}: attribute {} is an integer of {} bytes", where(), name, bytes);
  std::vector<std::uint64_t> values(opened.count);
  if (H5Tget_sign(opened.type.id()) == H5T_SGN_2) {  // written by other programs; never negative
    std::vector<std::int64_t> numbers(opened.count);
    HDF5_CHECK(kind_, where(), H5Aread(opened.attribute.id(), H5T_NATIVE_INT64, numbers.data()));
    const bool negative = std::any_of(numbers.begin(), numbers.end(), [](std::int64_t number) { return number < 0; });
    verify(!negative, kind_, "{}: attribute {} is negative", where(), name);
    std::copy(numbers.begin(), numbers.end(), values.begin());
  } else {
    HDF5_CHECK(kind_, where(), H5Aread(opened.attribute.id(), H5T_NATIVE_UINT64, values.data()));
  }
  return values;
}

double Hdf5Object::read_f64(const std::string& name) const {
  const auto lock = lock_hdf5();
  Opened opened = open(handle_.id(), kind_, where(), name, H5T_FLOAT);
  verify(opened.count == 1 && H5Tget_size(opened.type.id()) <= 8, kind_, "{}: attribute {} is not one number", where(),
         name);
  double value = 0;
  HDF5_CHECK(kind_, where(), H5Aread(opened.attribute.id(), H5T_NATIVE_DOUBLE, &value));
  return value;
}

std::string Hdf5Object::read_text(const std::string& name) const {
  const auto lock = lock_hdf5();
  Opened opened = open(handle_.id(), kind_, where(), name, H5T_STRING);
  const std::size_t bytes = H5Tget_size(opened.type.id());
  const bool good = opened.count == 1 && H5Tis_variable_str(opened.type.id()) == 0 && bytes >= 1 && bytes <= 65536;
  verify(good, kind_, "{}: attribute {} is not one text of fixed length", where(), name);
  std::string text(bytes, '\0');
  HDF5_CHECK(kind_, where(), H5Aread(opened.attribute.id(), opened.type.id(), text.data()));
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

}  // namespace megatron
