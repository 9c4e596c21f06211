# Makes OUTPUT, a C++ source with the function NAME() of the texts of FOLDER/*.toml: programs know them wherever they are.
file(GLOB files ${FOLDER}/*.toml)
list(SORT files)
set(rows "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND rows "      {\"${name}\", R\"~~(${text})~~\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"base/text/shipped_file.h\"

namespace megatron {

const std::vector<ShippedFile>& ${NAME}() {
  static const std::vector<ShippedFile> all = {
${rows}  };
  return all;
}

}  // namespace megatron
")
