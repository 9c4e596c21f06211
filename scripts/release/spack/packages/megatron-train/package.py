# The recipe for Spack:
#   spack repo add scripts/release/spack && spack dev-build megatron-train@develop
# `dev-build` takes the sources of the current folder, so that no address of them is needed here.
import archspec.cpu

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:  # Spack before 1.0 has them in spack.package
    pass
from spack.package import *


class MegatronTrain(CMakePackage, CudaPackage):
    """Trains GPT, BERT and T5 models split over tensor, pipeline, data and expert ranks of MPI."""

    license("Apache-2.0")

    version("develop")

    variant("nccl", default=True, when="+cuda", description="GPUs exchange tensors by NCCL")
    variant("icu", default=True, description="Find sentences by ICU's rules")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi", type=("build", "link", "run"))
    depends_on("boost+program_options")
    depends_on("hdf5~mpi")
    depends_on("onednn")
    depends_on("fmt@9:10")
    depends_on("nlohmann-json@3.11:")
    depends_on("tomlplusplus@3.3:")
    depends_on("xxhash@0.8:")
    depends_on("zlib-api")
    depends_on("zstd@1.4:")
    depends_on("bzip2")
    depends_on("icu4c@60:", when="+icu")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+nccl")

    conflicts("%gcc@:11", msg="needs C++20: GCC 12 or later")
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs: cuda_arch=80,90")

    generator("ninja")

    def march(self):
        """What this compiler calls the target: -march=NAME."""
        target = archspec.cpu.TARGETS[str(self.spec.target)]
        flags = target.optimization_flags(self.compiler.name, str(self.compiler.version))
        named = [flag[len("-march=") :] for flag in flags.split() if flag.startswith("-march=")]
        return named[0] if named else "native"

    def cmake_args(self):
        args = [
            self.define("MEGATRON_TESTS", False),
            self.define("MEGATRON_ARCH", self.march()),
            self.define_from_variant("MEGATRON_CUDA", "cuda"),
            self.define_from_variant("MEGATRON_ICU", "icu"),
            self.define("MEGATRON_CLD2", False),  # Spack has no package of it
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return args

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def plan_the_demo(self):
        plan = Executable(join_path(self.prefix.bin, "megatron_train"))
        plan(join_path(self.prefix.share.megatron_train.inputs, "demo.toml"), "--dry-run", "--ranks", "8")
