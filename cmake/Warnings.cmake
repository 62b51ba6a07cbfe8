# Flags of every target of ours. Errors only in presets, so that a newer compiler never breaks a user's build.
# nvcc gets fewer: what it hands to the host's compiler is full of its own casts.
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wconversion;-Wsign-conversion;-Wshadow>"
                    "$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Wold-style-cast>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:--compiler-options=-Wall,-Wextra>")
if(REFIT_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>")
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
if(REFIT_SANITIZE)
  add_compile_options(-fsanitize=${REFIT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${REFIT_SANITIZE})
endif()
if(REFIT_MUTANTS)
  add_compile_definitions(REFIT_MUTANTS=1)
endif()
find_program(REFIT_CCACHE ccache)
if(REFIT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${REFIT_CCACHE})
endif()
