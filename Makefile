# make demo    trains a small GPT, written in JAX, on 8 devices of this machine
# make test    runs the checks that every change must pass
# make build   builds build/release/bin/xlad
# make wheel   builds build/wheel/*.whl, the Python package including the command
# make bench   compares step times, compile times and memory with jax.jit
SHELL := /bin/bash
.PHONY: demo test test-all bench build wheel setup format tidy clean

setup:
	@scripts/setup.sh

build/%/build.ninja: CMakeLists.txt CMakePresets.json
	@mkdir -p build
	@cmake --preset $* >build/$*.cmake.log || { cat build/$*.cmake.log; exit 1; }

build: setup build/release/build.ninja
	@ninja -C build/release $(if $(V),-v) xlad

wheel: build
	@scripts/wheel.sh

demo: build
	@scripts/setup.sh --python
	@scripts/demo.sh

# BENCH contains flags of bench/step_vs_jax/step_vs_jax.py, for example BENCH="--only cnn --mesh single".
bench: build
	@scripts/setup.sh --python
	@ninja -C build/release step_vs_jax_xlad
	@build/venv/bin/python bench/step_vs_jax/step_vs_jax.py $(BENCH)

test: setup
	@scripts/test.sh

test-all: setup
	@scripts/test.sh --all

format:
	@git ls-files '*.cc' '*.h' | xargs clang-format-19 -i

tidy: build
	@scripts/tidy.sh

clean:
	rm -rf build
