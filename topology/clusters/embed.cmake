# Writes the descriptions of this folder into a source file, so that the library knows them where nothing is installed.
#   cmake -DOUT=file.cpp -P embed.cmake
file(GLOB files ${CMAKE_CURRENT_LIST_DIR}/*.json)
list(SORT files)
set(text "// Made from topology/clusters/*.json by topology/clusters/embed.cmake.\n#include \"topology/parse/catalogue.hpp\"\n\nnamespace tamaki {\n\n")
string(APPEND text "std::span<const NamedDescription> embedded_descriptions() {\n  static constexpr NamedDescription kAll[] = {\n")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} content)
  string(APPEND text "      {\"${name}\", R\"json(${content})json\"},\n")
endforeach()
string(APPEND text "  };\n  return kAll;\n}\n\n}  // namespace tamaki\n")
file(WRITE ${OUT} "${text}")
