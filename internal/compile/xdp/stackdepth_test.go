// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// The limits of the verifier of Linux 6.1 (kernel/bpf/verifier.c, check_max_stack_depth). The stack frames of a chain of calls, each rounded up to 32
// bytes, may have at most 512 bytes together. Newer kernels round to 16 bytes if the JIT compiler requests it.
const (
	mostStack  = 512
	roundStack = 32
)

// A stackFunction has the properties of a function that determine the stack use of a chain of calls.
type stackFunction struct {
	name  string
	bytes int // the size of the stack frame, as in struct bpf_subprog_info of the verifier
	calls []string
}

// stackFunctions returns the functions of a program in order. It includes dead code, because the verifier checks the stack before it removes dead
// code.
func stackFunctions(insns asm.Instructions) []*stackFunction {
	var functions []*stackFunction
	var lowest map[asm.Register]int // registers that point into the stack frame, with their distance below its end
	for i := range insns {
		in := &insns[i]
		if btf.FuncMetadata(in) != nil || i == 0 {
			functions = append(functions, &stackFunction{name: in.Symbol()})
			lowest = map[asm.Register]int{}
		}
		f := functions[len(functions)-1]
		f.bytes = max(f.bytes, stackUse(in, lowest))
		if to := in.Reference(); in.IsFunctionReference() && !slices.Contains(f.calls, to) {
			f.calls = append(f.calls, to)
		}
	}
	return functions
}

// stackUse returns how far below the end of the stack frame an instruction reaches, with a load, a store, or the address of a variable.
func stackUse(in *asm.Instruction, pointers map[asm.Register]int) int {
	op := in.OpCode
	switch class := op.Class(); {
	case class.IsStore() && in.Dst == asm.RFP, class == asm.LdXClass && in.Src == asm.RFP:
		return -int(in.Offset)
	case class == asm.ALU64Class && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource && in.Src == asm.RFP:
		pointers[in.Dst] = 0
	case class == asm.ALU64Class && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource:
		if _, ok := pointers[in.Dst]; ok {
			pointers[in.Dst] -= int(in.Constant)
			return pointers[in.Dst]
		}
	case class.IsALU() || class.IsLoad():
		delete(pointers, in.Dst)
	}
	return 0
}

// deepest returns the stack use in bytes of the deepest chain of calls from a function on, and the chain as text.
func deepest(functions []*stackFunction, name string) (bytes int, chain string) {
	f := functions[slices.IndexFunc(functions, func(f *stackFunction) bool { return f.name == name })]
	for _, callee := range f.calls {
		if below, through := deepest(functions, callee); below > bytes {
			bytes, chain = below, " > "+through
		}
	}
	return bytes + (max(f.bytes, 1)+roundStack-1)/roundStack*roundStack, fmt.Sprintf("%s %d%s", name, f.bytes, chain)
}

// stackPolicies are policies whose programs together contain every possible function, with many rules and with few.
var stackPolicies = map[string]string{
	"every key": largest(subject.AllChecks(), 8, 7, 600) + `  - {name: any, port: udp/53, dns: {type: [ANY], name: [evil.example]}, then: truncate}
  - {name: text, proto: udp, payload: {contains: "evil.example"}, sample: 1/10, then: drop}
  - {name: place, proto: udp, payload: {at: {offset: 4, bytes: "|0a 0b|"}}, then: drop}
  - {name: small, proto: tcp, mss: 0-535, then: drop}
  - {name: net, port: tcp/25, over: {rate: 1000/s, per: from/16, ban: {for: 10m, set: d0}}, then: drop}
services:
  - {name: dns, port: [udp/53, tcp/53], guard: dns}
  - {name: game, port: udp/7000, udp: protect}
  - {name: tunnel, port: udp/51820, udp: {protect: wireguard}}
  - {name: http3, port: udp/443, udp: {protect: quic}}
  - {name: source, port: udp/27015, udp: {protect: a2s}}
  - {name: bedrock, port: udp/19132, udp: {protect: raknet}}
`,
	"no rule": "default: drop",
	"usual": `default: drop
checks: strict
sets:
  office: [203.0.113.0/24]
  bans: {dynamic: true, max: 1000}
rules:
  - {name: banned, from: $bans, then: drop}
  - {name: rate, port: tcp/53, over: {rate: 100/s, per: from/24}, then: drop}
services:
  - {name: ssh, port: tcp/22, from: $office}
  - {name: game, port: udp/7000, udp: protect}
  - {name: http3, port: udp/443, udp: {protect: quic}}
  - {name: source, port: udp/27015, udp: {protect: a2s}}`,
}

// A stackCase is a form of program. It has the policy, the method of protection for the policy's services, and the form of the rules.
type stackCase struct {
	policy string
	method ir.CookieMethod // 0: there is no protection
	always bool
	form   xdpgen.Form
}

func (c stackCase) String() string {
	method := [...]string{"unprotected", "host", "listener", "router"}[c.method]
	return fmt.Sprintf("%s, %s, always=%t, %s", c.policy, method, c.always, c.form)
}

func stackCases() (cases []stackCase) {
	for _, policy := range []string{"every key", "no rule", "usual"} {
		for _, method := range []ir.CookieMethod{0, ir.MethodHost, ir.MethodListener, ir.MethodRouter} {
			for _, form := range []xdpgen.Form{xdpgen.Straight, xdpgen.Tables} {
				cases = append(cases, stackCase{policy, method, false, form})
				if method != 0 {
					cases = append(cases, stackCase{policy, method, true, form})
				}
			}
		}
	}
	return cases
}

// TestStackDepth checks without a kernel that no chain of calls uses more stack than the oldest supported kernel allows. It checks every form of the
// XDP program, and the programs that run in addition to it.
func TestStackDepth(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range stackCases() {
		for program, p := range c.spec(t).Programs {
			functions := stackFunctions(p.Instructions)
			bytes, chain := deepest(functions, functions[0].name)
			for _, f := range functions {
				seen[f.name] = true
			}
			if bytes > mostStack {
				t.Errorf("%s: %s: a chain of calls takes %d bytes of stack, want at most %d: %s", c, program, bytes, mostStack, chain)
			}
		}
	}
	for _, p := range image.Load().Programs {
		for _, f := range stackFunctions(p.Instructions) {
			if !seen[f.name] && !slices.Contains(leaves, f.name) {
				t.Errorf("no program of these policies has the function %s", f.name)
			}
		}
	}
}

// leaves are functions that call no other function and that only entries call, such as class4, but that no policy of the test uses.
var leaves = []string{"class4_of_host"} // for lists with so many hosts that a filter comes before the lookup

// stackReport matches the verifier's report about a program. The report has the stack frame sizes of the program's functions, in order.
var stackReport = regexp.MustCompile(`stack depth ([0-9+]+)`)

// TestStackDepthAgrees compares the stack frames that TestStackDepth computes with those that the verifier of this kernel reports. The verifier
// ignores unreachable code, so its frames may be smaller.
func TestStackDepthAgrees(t *testing.T) {
	testutil.RequireRoot(t)
	for _, c := range []stackCase{{"usual", ir.MethodHost, true, xdpgen.Straight}, {"usual", ir.MethodRouter, false, xdpgen.Tables}} {
		spec := c.spec(t)
		for _, m := range spec.Maps {
			m.Pinning = ebpf.PinNone
		}
		objects, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
		if err != nil {
			t.Fatal(err)
		}
		defer objects.Close()
		for name, p := range objects.Programs {
			compareStack(t, p, stackFunctions(spec.Programs[name].Instructions))
		}
	}
}

// compareStack compares the stack frames of a loaded program's functions with the functions of the same names.
func compareStack(t *testing.T, p *ebpf.Program, functions []*stackFunction) {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := info.FuncInfos() // the functions that the kernel has not removed, in the order of the report
	if err != nil {
		t.Fatal(err)
	}
	said := stackReport.FindStringSubmatch(p.VerifierLog)
	if said == nil {
		t.Fatalf("the verifier reports no stack depth: %s", p.VerifierLog)
	}
	for i, text := range strings.Split(said[1], "+") {
		bytes, err := strconv.Atoi(text)
		at := slices.IndexFunc(functions, func(f *stackFunction) bool { return f.name == kept[i].Func.Name })
		if err != nil || at < 0 || (functions[at].bytes+7)&^7 < bytes {
			t.Errorf("%s: %+v, the verifier says %s bytes of stack", kept[i].Func.Name, functions[max(at, 0)], text)
		}
	}
}

func (c stackCase) spec(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := c.generate(t).Spec()
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// generate compiles the program. If the case has a method of protection, the program has 20 protected services. It also takes samples of its traffic.
func (c stackCase) generate(t *testing.T) *xdpgen.Program {
	t.Helper()
	s := subject.Lower(t, stackPolicies[c.policy])
	s.Program.SampleTraffic, s.Program.SamplesAdapt, s.Program.SamplesLeaving = 1000, true, true
	for i := range s.Program.Guards {
		s.Program.Guards[i].Secrets = make([][16]byte, 1)
	}
	var by []ir.Handshake
	if c.method != 0 {
		protect(s.Program)
		for i := range s.Program.Protections {
			s.Program.Protections[i].Always = c.always
		}
		by = slices.Repeat([]ir.Handshake{{Method: c.method}}, len(s.Program.Protections))
	}
	x, err := xdpgen.Generate(s.Program, xdpgen.Options{Form: c.form, Protect: by, QuestionKey: subject.QuestionKey})
	if err != nil {
		t.Fatal(err)
	}
	return x
}
