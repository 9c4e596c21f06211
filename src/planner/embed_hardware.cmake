# Makes OUTPUT, a C++ source with the texts of the hardware files of FOLDER: megatron_plan knows them wherever it is.
file(GLOB files ${FOLDER}/*.toml)
list(SORT files)
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND rows "      {\"${name}\", R\"~~(${text})~~\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"planner/hardware.h\"

namespace megatron {

const std::vector<ShippedHardware>& shipped_hardware() {
  static const std::vector<ShippedHardware> all = {
${rows}  };
  return all;
}

}  // namespace megatron
")
