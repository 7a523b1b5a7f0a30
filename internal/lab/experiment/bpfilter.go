// This file has the published cases of bpfilter's own benchmark (github.com/facebook/bpfilter, tests/benchmarks/main.cpp) as a table of
// `program`: one packet, which the last of some rules drops, or a rule with a set; run by BPF_PROG_TEST_RUN.

package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
)

// The cases: numbers of rules of which the last one matches, and the addresses of a set.
var bpfilterRules = []int{1, 8, 32, 128, 512, 2048}

const bpfilterSet = 500_000

// bpfilterSource is the source of the packet, which the last rule names.
var bpfilterSource = netip.MustParseAddr("127.2.10.10")

// bpfilterKinds is the packet of the benchmark: an ICMP echo request of 42 bytes.
var bpfilterKinds = []packetKind{{"last", "ICMP echo request, dropped by the last rule", "icmp 127.2.10.10 > 127.2.10.11 echo-request len=28", 0}}

// bpfilterTable is Floodwall's part.
func bpfilterTable(set string) *table {
	var columns []*column
	for _, n := range bpfilterRules {
		columns = append(columns, &column{
			name: fmt.Sprintf("bpfilter/rules=%d", n), head: report.Things(n, "rule", "rules"), text: bpfilterPolicy(n), prepare: dropsLast,
		})
	}
	columns = append(columns, &column{
		name: fmt.Sprintf("bpfilter/set=%d", bpfilterSet), head: "a set of " + report.CountText(bpfilterSet), prepare: dropsLast,
		text: "default: pass\nchecks: off\nsets: {listed: {file: " + strconv.Quote(set) + "}}\nrules: [{name: listed, from: $listed, then: drop}]\n",
	})
	return newTable("program: nanoseconds a packet, by the published cases of bpfilter", bpfilterKinds, columns...)
}

// bpfilterPolicy has n rules, each with a counter, of which the last one is for the source.
func bpfilterPolicy(n int) string {
	var b strings.Builder
	b.WriteString("default: pass\nchecks: off\nrules:\n")
	for i := range n {
		from := rig.Addr4(uint32(i + 1<<24))
		if i == n-1 {
			from = bpfilterSource
		}
		fmt.Fprintf(&b, "  - {name: r%d, from: %s, then: drop}\n", i, from)
	}
	return b.String()
}

// dropsLast makes sure that the packet is dropped.
func dropsLast(_ context.Context, _ *rig.Site, _ control.Instance, p *ebpf.Program) error {
	_, err := programSend(p, bpfilterKinds[0].line, rig.XDPDrop)
	return err
}

// writeBpfilterSet writes the set, in which the source is the last.
func writeBpfilterSet(w io.Writer) error {
	l := *rig.RandomHosts(bpfilterSet - 1)
	l.Prefixes = append(l.Prefixes, netip.PrefixFrom(bpfilterSource, bpfilterSource.BitLen()))
	return l.Write(w)
}

// runBpfilter measures Floodwall, and beside it bpfilter itself when its source tree is given.
func runBpfilter(ctx context.Context, s *rig.Session, at *rig.Site) error {
	set, remove, err := rig.TempFile("set.txt", writeBpfilterSet)
	if err != nil {
		return err
	}
	defer remove()
	t := bpfilterTable(set)
	if t.keep(s.Wants); len(t.columns) == 0 {
		return nil
	}
	err = t.run(ctx, s, at)
	all := t.publish(s)
	s.Outcome.Tables = append(s.Outcome.Tables, all)
	if err != nil {
		return err
	}
	s.Steps.Show("bpfilter itself")
	figures, missing, err := bpfilterFigures(ctx, at.Server, s.Bpfilter)
	if err != nil {
		return fmt.Errorf("bpfilter: %w", err)
	}
	row := make([]string, len(all.Head))
	row[0] = "the same, by bpfilter itself"
	for i, c := range t.columns {
		name := strings.TrimPrefix(c.name, "bpfilter/")
		if c.text == "" {
			continue
		}
		r := lab.Result{Name: "program/bpfilter/" + name, Note: missing}
		if ns, ok := figures[name]; ok {
			r.Runs, r.Metrics = 1, []lab.Metric{{Value: ns, Unit: "ns/op"}}
			row[i+1] = strconv.FormatFloat(ns, 'f', 1, 64)
		} else if missing == "" {
			r.Note = "its benchmark has no such case"
		}
		s.Outcome.Results = append(s.Outcome.Results, r)
	}
	all.AddRow(row...)
	if missing == "" {
		missing = "its own benchmark, in whole nanoseconds by the kernel; its rules have no counters, Floodwall's have"
	}
	all.AddNote("bpfilter: %s", missing)
	return nil
}

// noBpfilter says how to have it measured.
const noBpfilter = "not packaged in Debian; BPFILTER=DIR names a source tree in which `make benchmark` was run"

// bpfilterFigures are the nanoseconds that bpfilter's own benchmark says, by case; missing is why there are none.
func bpfilterFigures(ctx context.Context, h *lab.Host, tree string) (figures map[string]float64, missing string, err error) {
	if tree == "" {
		return nil, noBpfilter, nil
	}
	program, errProgram := findBelow(tree, "benchmark_bin")
	cli, errCLI := findBelow(tree, "bfcli")
	if err := errors.Join(errProgram, errCLI); err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "floodwall-bench-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	// It pins what it loads at the usual place: in a BPF file system of its own.
	p, err := newProduct(h, program, dir)
	if err != nil {
		return nil, "", err
	}
	defer p.close()
	results := filepath.Join(dir, "results.json")
	c := exec.CommandContext(ctx, program, "--cli", cli, "--srcdir", tree, "--outfile", results, "--filter", "ip4_saddr")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err = p.start(c); err == nil {
		err = c.Wait()
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(out.Bytes()))
	}
	text, err := os.ReadFile(results)
	if err != nil {
		return nil, "", err
	}
	figures, err = readBpfilter(text)
	return figures, "", err
}

// findBelow finds a program in a tree.
func findBelow(tree, name string) (path string, err error) {
	err = filepath.WalkDir(tree, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != name || !d.Type().IsRegular() {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode()&0o111 == 0 {
			return err
		}
		path = at
		return fs.SkipAll
	})
	if err == nil && path == "" {
		err = fmt.Errorf("no program %s in %s: run `cmake` and `make benchmark` there", name, tree)
	}
	return path, err
}

// bpfilterCase matches the names of its benchmark that are cases here: of one rule, of some, and of one with a set.
var bpfilterCase = regexp.MustCompile(
	`^(single_rule__ip4_saddr|multiple_rules__ip4_saddr/(\d+)|single_rule__ip4_saddr__x_elem_set/(\d+))(/manual_time)?$`)

// readBpfilter reads the output of its benchmark, which is Google Benchmark's.
func readBpfilter(text []byte) (map[string]float64, error) {
	var results struct {
		Benchmarks []struct {
			Name  string  `json:"name"`
			Real  float64 `json:"real_time"`
			Unit  string  `json:"time_unit"`
			Wrong bool    `json:"error_occurred"`
		} `json:"benchmarks"`
	}
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("results of its benchmark: %w", err)
	}
	figures := map[string]float64{}
	for _, b := range results.Benchmarks {
		found := bpfilterCase.FindStringSubmatch(b.Name)
		if found == nil || b.Wrong || b.Unit != "ns" {
			continue
		}
		switch {
		case found[2] != "":
			figures["rules="+found[2]] = b.Real
		case found[3] != "":
			figures["set="+found[3]] = b.Real
		default:
			figures["rules=1"] = b.Real
		}
	}
	return figures, nil
}
