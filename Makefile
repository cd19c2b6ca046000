# make demo    train a small GPT, written in JAX, on 8 devices of this machine
# make test    what every change must pass
# make build   build/release/bin/xlad
# make wheel   build/wheel/*.whl: the Python package with the command inside
# make bench   training steps beside jax.jit: times, compile times, memory
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

# BENCH="--only cnn --mesh single" and so on: flags of bench/step_vs_jax/step_vs_jax.py
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
