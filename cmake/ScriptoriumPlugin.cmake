# What a plugin needs wherever it is built: in this tree, and outside it with find_package(Scriptorium).

# scriptorium_build_stamp(OUT API_HASH): what must be equal on both sides for C++ types to cross between daemon and plugin.
function(scriptorium_build_stamp out api_hash)
  string(TOLOWER "${CMAKE_CXX_COMPILER_ID}" compiler_id)
  set(${out} "${compiler_id}-${CMAKE_CXX_COMPILER_VERSION}/cxx11/${api_hash}" PARENT_SCOPE)
endfunction()

# scriptorium_plugin_module(TARGET): the library exports its descriptor and nothing else, and stays loaded.
set(SCRIPTORIUM_PLUGIN_MAP "${CMAKE_CURRENT_LIST_DIR}/plugin.map")
function(scriptorium_plugin_module target)
  target_link_options(${target} PRIVATE "-Wl,--version-script=${SCRIPTORIUM_PLUGIN_MAP}" -Wl,-z,nodelete)
  set_target_properties(${target} PROPERTIES PREFIX "" LINK_DEPENDS "${SCRIPTORIUM_PLUGIN_MAP}")
endfunction()
