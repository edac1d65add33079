#!/usr/bin/env bash
# Builds StarPU 1.4 once into the cache and prints its prefix on stdout.
#
# usage: starpu.sh cuda|cpu
#
# The source is the distribution's own source package, fetched with apt from the mirror that this
# machine is configured for, into a folder of its own: apt's configuration stays as it is.
# Everything is made under a temporary name and renamed at the end, so an interrupted build
# leaves nothing that looks installed.
set -euo pipefail
shopt -s inherit_errexit

flavour=${1:?usage: starpu.sh cuda|cpu}
cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}

say() { echo "starpu: $*" >&2; }
die() { say "error: $*"; exit 1; }

# installed: the prefix of a finished build of this flavour, if there is one.
installed() {
    local prefix
    for prefix in "$cache"/starpu-1.4.*-"$flavour"; do
        [ -f "$prefix/lib/pkgconfig/starpu-1.4.pc" ] && echo "$prefix" && return
    done
    return 1
}

# step NAME COMMAND...: runs the command with its output in a log; a failure names both.
step() {
    local log=$cache/log/starpu-$1.log
    shift
    "$@" >"$log" 2>&1 </dev/null && return
    tail -n 15 "$log" >&2
    die "failed: $* (log: $log)"
}

# archive: where this machine gets its packages, whichever format apt's sources are in.
archive() {
    # shellcheck disable=SC2016 # The variable is apt's.
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
        grep -v -i security | head -n 1 || true
}

# suites: where to look for StarPU 1.4, the wanted one first.
suites() {
    local ID='' VERSION_CODENAME=''
    # shellcheck source=/dev/null
    . /etc/os-release
    case $ID in
        ubuntu) echo "$VERSION_CODENAME:universe" ;;
        *) echo "unstable:main testing:main stable:main" ;;
    esac
}

# apt SUITE:COMPONENT COMMAND...: apt-get on that suite's sources alone.
apt() {
    local dir=$work/apt-${1%:*} keys
    mkdir -p "$dir"/{lists,archives}/partial
    for keys in /usr/share/keyrings/{debian,ubuntu}-archive-keyring.{gpg,pgp}; do
        [ -f "$keys" ] && break
    done
    echo "deb-src [signed-by=$keys] $mirror ${1%:*} ${1#*:}" >"$dir/sources.list"
    shift
    apt-get -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$dir/lists" -o Dir::Cache::Archives="$dir/archives" \
        -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache= \
        -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}

# fetch: downloads and unpacks the source into $work/source; apt verifies signature and hashes.
fetch() {
    local suite version='' tarball
    mirror=$(archive)
    [ -n "$mirror" ] || die "apt has no package source configured: set one up, or give" \
        "configure --with-starpu=PREFIX"
    for suite in $(suites); do
        apt "$suite" update >"$cache/log/starpu-apt.log" 2>&1 </dev/null || continue
        version=$(apt "$suite" --print-uris source starpu 2>/dev/null </dev/null |
            sed -n "s/.*starpu_\(1\.4\.[0-9]*\).*\.orig\.tar.*/\1/p" | head -n 1) || true
        [ -n "$version" ] && break
    done
    [ -n "$version" ] || die "no suite of $mirror has the source of StarPU 1.4 (log:" \
        "$cache/log/starpu-apt.log): build it yourself, give configure --with-starpu=PREFIX"
    say "fetching StarPU $version from ${suite%:*}"
    mkdir "$work/source"
    (cd "$work" && step fetch apt "$suite" --download-only --tar-only source starpu)
    tarball=$(echo "$work"/starpu_"$version"*.orig.tar.*)
    step unpack tar -C "$work/source" --strip-components=1 -xf "${tarball%% *}"
    echo "$version" >"$work/version"
}

# options: what StarPU is configured with, one option a line: the runtime alone.
options() {
    printf -- '--%s\n' enable-maxcpus=256 enable-maxbuffers=32 disable-static \
        disable-mpi disable-opencl disable-hip disable-max-fpga disable-starpufft \
        disable-starpupy disable-starpurm disable-socl disable-openmp disable-fortran \
        disable-hdf5 disable-fxt disable-papi disable-glpk disable-ayudame1 disable-ayudame2 \
        disable-valgrind disable-build-doc disable-build-tests disable-build-examples
    if [ "$flavour" = cuda ]; then
        printf -- '--%s\n' "with-cuda-dir=$cuda" enable-cuda enable-maxcudadev=8
        echo "LDFLAGS=-L$cuda/lib64/stubs -L$cuda/lib64 -Wl,-rpath,$cuda/lib64"
    else
        echo --disable-cuda
    fi
}

# mend: cudaDeviceProp.computeMode went away with CUDA 13; the attribute says the same.
mend() {
    local mode='({ int mode = 0; cudaDeviceGetAttribute(\&mode, cudaDevAttrComputeMode, devid); mode; })'
    sed -i "s/props\[devid\]\.computeMode/$mode/" "$work/source/src/drivers/cuda/driver_cuda.c"
}

# build: configures, compiles and installs into $work/stage, then gives it its name.
build() {
    local version prefix opts
    version=$(cat "$work/version")
    prefix=$cache/starpu-$version-$flavour
    mapfile -t opts < <(options)
    mend
    [ -x "$work/source/configure" ] || (cd "$work/source" && step autogen ./autogen.sh)
    mkdir "$work/build"
    cd "$work/build"
    say "configuring StarPU $version ($flavour)"
    step configure ../source/configure --prefix="$prefix" "${opts[@]}"
    say "compiling StarPU (minutes; log: $cache/log/starpu-make.log)"
    step make make -j"$(nproc)" -C src
    step install make -C src install DESTDIR="$work/stage"
    step install-headers make install-data-am DESTDIR="$work/stage"
    mkdir -p "$work/stage$prefix/share/starpu/perfmodels/sampling" # It warns if this is not there.
    rm -f "$work/stage$prefix"/lib/*.la # They would draw StarPU's own libraries into ours.
    rm -rf "$prefix"
    mv "$work/stage$prefix" "$prefix"
    echo "$prefix"
}

# cuda_dir: the toolkit whose nvcc is found.
cuda_dir() {
    local nvcc dir
    nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || die "put nvcc on PATH"
    dir=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    [ -f "$dir/include/cuda_runtime.h" ] || dir=/usr
    echo "$dir"
}

installed && exit
[ "$flavour" = cpu ] || cuda=$(cuda_dir)
mkdir -p "$cache/log"
cache=$(cd "$cache" && pwd)
work=$(mktemp -d "$cache/unfinished-starpu.XXXXXX")
trap 'rm -rf "$work"' EXIT
fetch
build
