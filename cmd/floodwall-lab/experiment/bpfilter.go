// SPDX-License-Identifier: Apache-2.0

// This file has the published cases of bpfilter's own benchmark (github.com/facebook/bpfilter, tests/benchmarks/main.cpp) as a table of `program`. A
// case is one packet that BPF_PROG_TEST_RUN runs. The last of a number of rules drops the packet, or a rule with a set drops it.

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

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
)

// The cases: numbers of rules of which the last one matches, and the number of addresses in a set.
var bpfilterRules = []int{1, 8, 32, 128, 512, 2048}

const bpfilterSet = 500_000

// bpfilterSource is the source of the packet. The last rule matches this source.
var bpfilterSource = netip.MustParseAddr("127.2.10.10")

// bpfilterKinds is the packet of the benchmark: an ICMP echo request of 42 bytes.
var bpfilterKinds = []packetKind{{"last", "ICMP echo request, dropped by the last rule", "icmp 127.2.10.10 > 127.2.10.11 echo-request len=28", 0}}

// bpfilterTable returns the table of Floodwall's figures.
func (p *programs) bpfilterTable(set string) *rig.Table {
	var columns []column
	for _, n := range bpfilterRules {
		columns = append(columns, column{
			name: fmt.Sprintf("bpfilter/rules=%d", n), head: report.Things(n, "rule", "rules"), text: bpfilterPolicy(n), prepare: dropsLast,
		})
	}
	columns = append(columns, column{
		name: fmt.Sprintf("bpfilter/set=%d", bpfilterSet), head: "a set of " + report.CountText(bpfilterSet), prepare: dropsLast,
		text: "default: pass\nchecks: off\nsets: {listed: {file: " + strconv.Quote(set) + "}}\nrules: [{name: listed, from: $listed, then: drop}]\n",
	})
	return p.table("program: nanoseconds a packet, by the published cases of bpfilter", bpfilterKinds, columns...)
}

// bpfilterPolicy returns a policy with n rules, each with a counter. The last rule matches bpfilterSource.
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

// dropsLast checks that the packet is dropped.
func dropsLast(_ context.Context, _ *rig.Site, _ control.Instance, p *ebpf.Program) error {
	_, err := programSend(p, bpfilterKinds[0].line, rig.XDPDrop)
	return err
}

// writeBpfilterSet writes the set. Its last entry is bpfilterSource.
func writeBpfilterSet(w io.Writer) error {
	l := *rig.RandomHosts(bpfilterSet - 1)
	l.Prefixes = append(l.Prefixes, netip.PrefixFrom(bpfilterSource, bpfilterSource.BitLen()))
	return l.Write(w)
}

// bpfilter measures Floodwall. If the source tree of bpfilter is given, it also measures bpfilter.
func (p *programs) bpfilter(ctx context.Context) error {
	set, remove, err := rig.TempFile("set.txt", writeBpfilterSet)
	if err != nil {
		return err
	}
	defer remove()
	t := p.bpfilterTable(set)
	all, err := p.run(ctx, t)
	if err != nil || len(t.Columns) == 0 {
		return err
	}
	p.Steps.Show("bpfilter itself")
	figures, missing, err := bpfilterFigures(ctx, p.at.Server, p.Bpfilter)
	if err != nil {
		return fmt.Errorf("bpfilter: %w", err)
	}
	row := make([]string, len(all.Head))
	row[0] = "the same, by bpfilter itself"
	for i, c := range t.Columns {
		name, own := strings.CutPrefix(c.Load, "bpfilter/")
		if !own {
			continue
		}
		r := lab.Result{Name: "program/bpfilter/" + name, Note: missing}
		if ns, ok := figures[name]; ok {
			r.Runs, r.Metrics = 1, []lab.Metric{{Value: ns, Unit: "ns/op"}}
			row[i+1] = strconv.FormatFloat(ns, 'f', 1, 64)
		} else if missing == "" {
			r.Note = "its benchmark has no such case"
		}
		p.Outcome.Results = append(p.Outcome.Results, r)
	}
	all.AddRow(row...)
	if missing == "" {
		missing = "its own benchmark, in whole nanoseconds by the kernel; its rules have no counters, Floodwall's have"
	}
	all.AddNote("bpfilter: %s", missing)
	return nil
}

// noBpfilter says how bpfilter can be measured.
const noBpfilter = "not packaged in Debian; BPFILTER=DIR names a source tree in which `make benchmark` was run"

// bpfilterFigures returns the nanoseconds that bpfilter's own benchmark reports for each case. If there are no figures, missing is the reason.
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
	// The benchmark pins its programs at the usual place, so it gets a BPF file system of its own.
	p, err := newProduct(h, program, dir)
	if err != nil {
		return nil, "", err
	}
	defer p.close()
	results := filepath.Join(dir, "results.json")
	c := exec.CommandContext(ctx, program, "--cli", cli, "--srcdir", tree, "--outfile", results, "--filter", "ip4_saddr")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	running, err := p.start(c)
	if err == nil {
		err = running.Wait()
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

// findBelow returns the path of a program in a directory tree.
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

// bpfilterCase matches the names of bpfilter's benchmarks that are also cases here: with one rule, with several rules, and with a set.
var bpfilterCase = regexp.MustCompile(
	`^(single_rule__ip4_saddr|multiple_rules__ip4_saddr/(\d+)|single_rule__ip4_saddr__x_elem_set/(\d+))(/manual_time)?$`)

// readBpfilter parses the output of bpfilter's benchmark. The format is that of Google Benchmark.
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
