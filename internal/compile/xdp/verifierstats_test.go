// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/compile/image"
	xdpgen "github.com/floodwall/floodwall/internal/compile/xdp"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// verifierFile has the expected statistics for each kernel. In a guest, it has the same path (scripts/kernels).
const verifierFile = "../../../.ci/verifier.json"

// verifierMark begins the output line from which `make verifier` updates the file.
const verifierMark = "verifier's statistics: "

// statisticsCases returns the programs whose verification is measured: policies at the limits of the language, and each form that the kernel
// supports.
func statisticsCases(t *testing.T) map[string]*xdpgen.Program {
	cases := map[string]*xdpgen.Program{}
	for name, text := range map[string]string{
		"64 expressions, 600 rules, straight":            largest(subject.AllChecks(), 56, 7, 600),
		"64 expressions, 600 rules, no checks, straight": largest("off", 56, 7, 600),
		"64 expressions, 1000 rules, tables":             largest(subject.AllChecks(), 56, 7, 1000),
		"10,000 different rules, tables":                 different(10_000),
	} {
		form := xdpgen.Straight
		if strings.HasSuffix(name, "tables") {
			form = xdpgen.Tables
		}
		x, err := xdpgen.Generate(subject.Lower(t, text).Program, xdpgen.Options{Form: form, QuestionKey: subject.QuestionKey})
		if err != nil {
			t.Fatal(err)
		}
		cases[name] = x
	}
	for _, c := range loadableForms(t) {
		cases[c.String()] = c.generate(t)
	}
	return cases
}

// TestVerifierStatistics loads the largest policies and each form of program. It compares the verifier's statistics with the expected ones, and
// with the verifier's limits.
func TestVerifierStatistics(t *testing.T) {
	testutil.RequireRoot(t)
	known, err := subject.ReadVerifierFile(verifierFile)
	if err != nil {
		t.Fatal(err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	seen := subject.VerifierKernel{Release: release, Programs: map[string]subject.Verified{}}
	cases := statisticsCases(t)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		for program, v := range statisticsOf(t, name, cases[name]) {
			program = name + ": " + program
			seen.Programs[program] = v
			for _, wrong := range known.Compare(release, program, v) {
				t.Errorf("%s: %s", program, wrong)
			}
		}
	}
	if of := known[subject.VersionOf(release)]; of.Release == release {
		for program := range of.Programs {
			if _, ok := seen.Programs[program]; !ok {
				t.Errorf("%s: it was loaded on this kernel before", program)
			}
		}
	}
	text, err := json.Marshal(subject.VerifierFile{subject.VersionOf(release): seen})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s%s", verifierMark, text)
}

// statisticsOf loads a program and those beside it. It returns the verifier's statistics for each.
func statisticsOf(t *testing.T, name string, x *xdpgen.Program) map[string]subject.Verified {
	t.Helper()
	spec, err := x.Spec()
	if err != nil {
		t.Fatal(err)
	}
	if x.Egress && features.Egress() != nil { // datapath leaves the program out in this case
		x.Egress = false
		if spec, err = x.Spec(); err != nil {
			t.Fatal(err)
		}
	}
	if err := spec.Variables[image.ReadsKernel].Set(x.Egress && features.ReadsKernel()); err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	objects, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if refused := (*ebpf.VerifierError)(nil); errors.As(err, &refused) {
		t.Fatalf("%s: %v\n%s", name, err, strings.Join(refused.Log[max(0, len(refused.Log)-30):], "\n"))
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer objects.Close()
	all := map[string]subject.Verified{}
	for program, p := range objects.Programs {
		if all[program], err = subject.ReadVerified(p.VerifierLog); err != nil {
			t.Fatalf("%s, %s: %v", name, program, err)
		}
	}
	return all
}
