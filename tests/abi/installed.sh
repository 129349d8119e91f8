#!/bin/bash
# installed.sh BUILD SOURCE CC CXX: a C and a C++ program are built against the installed tree, moved to another place
# than its prefix, with each of pkg-config and CMake, and run.
set -euo pipefail
build=$1 source=$2 cc=$3 cxx=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Nothing but the programs' own rank: not that of a launcher this test may run under.
unset TAMAKI_RANK TAMAKI_SIZE TAMAKI_RENDEZVOUS PMI_RANK OMPI_COMM_WORLD_RANK

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
tree=$work/moved
pc=$(dirname "$(find "$tree" -name tamaki.pc)")
lib=$(dirname "$pc")
for file in include/tamaki/tamaki.h include/tamaki/tamaki.hpp bin/tamaki; do
  [ -e "$tree/$file" ] || { echo "$file is not installed"; exit 1; }
done
for mpi in openmpi mpich; do
  if [ -e "$build/libtamaki_mpi_$mpi.so" ] && [ ! -e "$lib/tamaki/libtamaki_mpi_$mpi.so" ]; then
    echo "libtamaki_mpi_$mpi.so was built but is not installed"; exit 1
  fi
done
export LD_LIBRARY_PATH=$lib PKG_CONFIG_PATH=$pc CC=$cc CXX=$cxx
run() { echo "-- ${*/#$work\//}"; timeout 60 "$@"; }

cd "$work"
[ "$(pkg-config --modversion tamaki)" = "$("$tree/bin/tamaki" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -1)" ] ||
  { echo "tamaki.pc and the command tell different versions"; exit 1; }
"$cc" -std=c99 -Wall -Wextra -Werror "$source/examples/allreduce.c" $(pkg-config --cflags --libs tamaki) -o pc_c
"$cxx" -std=c++20 -Wall -Wextra -Wshadow -Werror "$source/examples/ring.cpp" $(pkg-config --cflags --libs tamaki) -o pc_cpp
run ./pc_c
run ./pc_cpp

mkdir c cpp
cat >c/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(Tamaki 0.1 REQUIRED)
add_executable(user $source/examples/allreduce.c)
target_link_libraries(user PRIVATE Tamaki::tamaki)
END
cat >cpp/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(Tamaki 0.1 REQUIRED)
add_executable(user $source/examples/ring.cpp)
target_link_libraries(user PRIVATE Tamaki::tamaki)
END
for language in c cpp; do
  cmake -S $language -B $language/build -DCMAKE_PREFIX_PATH="$tree" >$language.log ||
    { cat $language.log; exit 1; }
  cmake --build $language/build >>$language.log || { cat $language.log; exit 1; }
  run $language/build/user
done
# The same, as the ranks of a job.
run "$tree/bin/tamaki" run -n 3 -- ./pc_c
run "$tree/bin/tamaki" run -n 3 -- ./pc_cpp
