// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/compile/image"
)

// TestOptional checks that the C part has a function and a constant for each entry in the list of optional functions. Otherwise a renamed function
// would stay in every program, together with the kernel features that it needs.
func TestOptional(t *testing.T) {
	spec := image.Load()
	var functions []string
	for _, prog := range spec.Programs {
		for i := range prog.Instructions {
			if f := btf.FuncMetadata(&prog.Instructions[i]); f != nil {
				functions = append(functions, f.Name)
			}
		}
	}
	for function, constant := range image.Optional {
		if !slices.Contains(functions, function) {
			t.Errorf("the C part has no function %s", function)
		}
		if spec.Variables[constant] == nil {
			t.Errorf("the C part has no constant %s", constant)
		}
	}
}

// TestNoForeignFunctions checks that a program without optional parts calls no function of the kernel or of its modules. A kernel may not have such a
// function.
func TestNoForeignFunctions(t *testing.T) {
	im := image.Image{Decide: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, Constants: map[string]any{"protects": true, "protect_host": true}}
	spec, err := im.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range spec.Programs[image.Program].Instructions {
		if in.IsKfuncCall() {
			t.Errorf("the program for XDP calls %s", in.Reference())
		}
	}
}
