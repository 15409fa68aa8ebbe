# Writes docs/reference/NAME.md for each plugin and for core, as the command itself prints them:
#   cmake --build build/dev --target reference
# cmake -DCOMMAND=scriptorium -DPLUGINS=FOLDER -DNAMES="a b" -DINTO=FOLDER -DSCRATCH=FOLDER -P GenerateDocs.cmake
separate_arguments(names UNIX_COMMAND "${NAMES}")
# Not the configuration of this machine, whose plugin_dirs may point elsewhere.
set(config "${SCRATCH}/reference.toml")
file(WRITE "${config}" "cluster = \"reference\"\nplugin_dirs = [\"${PLUGINS}\"]\n")
file(MAKE_DIRECTORY "${INTO}")
foreach(name IN LISTS names)
  execute_process(COMMAND "${COMMAND}" plugins ${name} --markdown --config "${config}" OUTPUT_VARIABLE page RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "scriptorium plugins ${name} --markdown: exit code ${code}")
  endif()
  file(WRITE "${INTO}/${name}.md" "${page}")
endforeach()
