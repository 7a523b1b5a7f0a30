// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
)

var body = asm.Instructions{asm.Mov.Imm(asm.R0, 7), asm.Mov.Imm(asm.R0, 8), asm.Return()}

// TestMapNames checks that the object has every map that the Go code names, except for maps that only the generated rules and user space use.
func TestMapNames(t *testing.T) {
	spec := image.Load()
	for _, name := range []string{image.Counters, image.Filter4, image.Index4, image.Background4, image.Filter6, image.DynamicInfo,
		image.Lines4, image.Full4, image.Hosts4, image.Buckets6, image.Dynamic, image.Guards, image.GuardPorts, image.Verified} {
		if spec.Maps[name] == nil {
			t.Errorf("the object has no map %s", name)
		}
	}
	for _, name := range []string{image.Masks, image.Index, image.Rows, image.Results, image.DynamicTexts, image.DynamicWhy} {
		if spec.Maps[name] != nil {
			t.Errorf("the object has a map %s", name)
		}
		if len(name) > 15 {
			t.Errorf("the kernel cuts the name %s", name)
		}
	}
	if spec.Programs[image.Program] == nil || spec.Programs[image.Program].Type != ebpf.XDP {
		t.Errorf("the object has no XDP program %s", image.Program)
	}
}

func TestSpec(t *testing.T) {
	im := image.Image{
		Decide:    body,
		Constants: map[string]any{"question_key": uint64(5)},
		Shapes:    map[string]image.Shape{image.Lines4: {ValueSize: 64, Entries: 9}, "mine": {ValueSize: 6, Entries: 2}},
	}
	spec, err := im.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]image.Shape{image.Lines4: {64, 9}, "mine": {6, 2}, image.Full4: {512, 1}} {
		m := spec.Maps[name]
		if m == nil || m.Type != ebpf.Array || m.ValueSize != want.ValueSize || m.MaxEntries != want.Entries ||
			m.Flags&unix.BPF_F_MMAPABLE == 0 {
			t.Errorf("map %s is %+v, want a mappable array of %v", name, m, want)
		}
	}
	prog := spec.Programs[image.Program]
	if prog.Flags&unix.BPF_F_XDP_HAS_FRAGS == 0 {
		t.Error("the program refuses multi-buffer frames")
	}
	image.Linear(spec)
	if prog.Flags&unix.BPF_F_XDP_HAS_FRAGS != 0 {
		t.Error("the linear program takes multi-buffer frames")
	}
	decide := functionOf(prog.Instructions, "decide")
	if len(decide) != len(body) || decide[0].Constant != 7 || decide[1].Constant != 8 || decide[0].Symbol() != "decide" {
		t.Errorf("decide is\n%v", decide)
	}
}

// TestSpecEgress checks that a spec contains the program for outgoing packets only if the policy needs it. The programs for native and generic mode
// must not both contain it.
func TestSpecEgress(t *testing.T) {
	for _, test := range []struct {
		egress  bool
		clients uint32 // 0: there is no such map
	}{{false, 0}, {true, 1 << 16}} {
		spec, err := (&image.Image{Decide: body, Egress: test.egress}).Spec()
		if err != nil {
			t.Fatal(err)
		}
		if prog := spec.Programs[image.Egress]; (prog != nil) != test.egress || prog != nil && prog.Type != ebpf.SchedCLS {
			t.Errorf("egress %t: the program is %+v", test.egress, prog)
		}
		var clients uint32
		if m := spec.Maps[image.Verified]; m != nil {
			clients = m.MaxEntries
		}
		if clients != test.clients {
			t.Errorf("egress %t: the map of clients has %d entries, want %d", test.egress, clients, test.clients)
		}
		image.Linear(spec)
		if spec.Programs[image.Egress] != nil {
			t.Errorf("egress %t: the program comes twice", test.egress)
		}
	}
}

// functionOf returns the instructions of the function whose type information has the given name.
func functionOf(insns asm.Instructions, name string) asm.Instructions {
	start := slices.IndexFunc(insns, func(i asm.Instruction) bool {
		fn := btf.FuncMetadata(&i)
		return fn != nil && fn.Name == name
	})
	end := slices.IndexFunc(insns[start+1:], func(i asm.Instruction) bool { return btf.FuncMetadata(&i) != nil })
	if end < 0 {
		return insns[start:]
	}
	return insns[start : start+1+end]
}

// TestSpecLeavesImage checks that Spec does not change the image. It makes two specs from one image, as a reload does.
func TestSpecLeavesImage(t *testing.T) {
	im := image.Image{Decide: slices.Clone(body)}
	for range 2 {
		if _, err := im.Spec(); err != nil {
			t.Fatal(err)
		}
	}
	if im.Decide[0].Symbol() != "" {
		t.Error("Spec changed the image's instructions")
	}
}

func TestSpecErrors(t *testing.T) {
	for _, test := range []struct {
		im   image.Image
		want string
	}{
		{image.Image{}, "the code of decide is empty"},
		{image.Image{Decide: body, Constants: map[string]any{"nonesuch": uint32(1)}}, "constant nonesuch: the program has none of that name"},
		{image.Image{Decide: body, Constants: map[string]any{"filter4_mask": uint64(1)}}, "constant filter4_mask: "},
	} {
		if _, err := test.im.Spec(); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("error is %v, want %s", err, test.want)
		}
	}
}

func TestShapeSize(t *testing.T) {
	for shape, want := range map[image.Shape]int{{8, 1}: 8, {6, 2}: 16, {64, 1000}: 64000, {9, 3}: 48, {1 << 21, 1}: 1 << 21} {
		if got := shape.Size(); got != want {
			t.Errorf("%+v has %d bytes, want %d", shape, got, want)
		}
	}
}
