// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/floodwall/floodwall/internal/compile/plan"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/importer"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/test/testutil"
)

// corpusVar names the environment variable with a directory of archives for TestCorpus, in the form of those under
// testdata/corpus.
const corpusVar = "FLOODWALL_CORPUS"

// corpusPackets is the number of packets that are sent through the rules of an archive, and through its policy on each target.
const corpusPackets = 2000

// TestCorpus sends packets through rules in the kernel, and through the policy that is imported from them, which it loads like
// `apply` on XDP and on nftables. If the verdicts differ, the packet must have met a rule that the report of the import names,
// or a check that the policy adds.
func TestCorpus(t *testing.T) {
	dir := os.Getenv(corpusVar)
	if dir == "" {
		dir = "testdata/corpus"
	}
	list := casesIn(t, dir)
	if len(list) == 0 {
		t.Fatalf("no archive is in %s", dir)
	}
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			if testutil.Inside(t) {
				c.packets = corpusPackets
				c.corpus(t)
			}
		})
	}
}

// corpus tests one ruleset.
func (c *testCase) corpus(t *testing.T) {
	c.importedAsIs(t)
	sources, format := c.counted(t)
	r, err := importer.Import(context.Background(), sources, importer.Options{Format: format, Devices: c.device, Router: c.router, ListFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.Unfit != "" {
		t.Errorf("check refuses the policy: %s", r.Unfit)
	}
	c.device = []string{policyDevice(t, r)}
	c.router = c.router || strings.Contains(r.Policy, "to: local") || strings.Contains(r.Policy, "to: [local")
	k := &kernel{testCase: c, result: r, any: true}
	k.program = lower(t, r)
	k.judge = testutil.NewJudge(t, c.dev(), "wire0", true, "192.0.2.1/24", "2001:db8::1/64", "203.0.113.1/24")
	run(t, witnesses(c.dev()), "nft", "-f", "-")
	run(t, "", "ip", "-6", "route", "replace", "default", "dev", c.dev())
	probes := oneOfEach(k.probes(t))
	w := &wire{kernel: k, probes: probes, sources: sources}
	w.compareAll(t)
}

// importedAsIs imports the files as they were found, and checks that the policy compiles.
func (c *testCase) importedAsIs(t *testing.T) {
	sources, format := c.sources()
	r, err := importer.Import(context.Background(), sources, importer.Options{Format: format, Devices: c.device, Router: c.router, ListFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	same(t, r)
	if r.Unfit != "" {
		t.Errorf("check refuses the policy of the files as they are: %s", r.Unfit)
	}
	t.Logf("%d rules, %d sets; of %d that drop %d in it, %d lost, %d aside; %d lost in all", r.Rules, r.Sets, r.Drops.Input, r.Drops.Policy,
		r.Drops.Lost, r.Drops.Aside, r.LostRules())
}

var policyDevices = regexp.MustCompile(`(?m)^devices: \[([^,\]]*)`)

// policyDevice returns the first device of a policy.
func policyDevice(t *testing.T, r *importer.Result) string {
	m := policyDevices.FindStringSubmatch(r.Policy)
	if m == nil {
		t.Fatalf("no device\n%s", r.Policy)
	}
	return strings.Trim(m[1], `"`)
}

// wire compares a ruleset and its policy with real packets.
type wire struct {
	*kernel
	probes  []probe
	sources []importer.Source // the rules, with counters
}

// compareAll sends the packets without rules, with the original rules, and with the policy on each target.
func (w *wire) compareAll(t *testing.T) {
	frames := make([][]byte, len(w.probes))
	for i, p := range w.probes {
		frames[i] = p.frame
	}
	send := func() []testutil.Fate {
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			t.Fatal(err)
		}
		return w.fates(t, frames)
	}
	without := send()
	w.restore(t)
	original := send()
	w.clear(t)
	w.translate(t)
	in := control.Instance{Dir: datapath.DefaultDir}
	dir := t.TempDir()
	for _, l := range w.result.Lists {
		writeFile(t, filepath.Join(dir, l.Name), l.Data)
	}
	p, err := policy.Parse(filepath.Join(dir, "policy.yaml"), []byte(w.result.Policy))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []plan.Target{control.TargetAuto, plan.TargetNftables} {
		applied, err := in.Apply(t.Context(), p, control.ApplyOptions{Target: target})
		if err != nil {
			t.Errorf("apply on %s: %v\n%s", target, err, w.result.Policy)
			continue
		}
		if target == control.TargetAuto && applied.Target != plan.TargetXDP {
			t.Errorf("auto is %s: %s", applied.Target, applied.Choice)
		}
		fates := send()
		if err := in.Unload(t.Context()); err != nil { // otherwise the policy would drop packets before they reach the rules that differences loads
			t.Fatal(err)
		}
		w.differences(t, applied.Target, without, original, fates)
	}
}

// differences explains each packet that has another verdict with the policy.
func (w *wire) differences(t *testing.T, target plan.Target, without, original, policy []testutil.Fate) {
	compared, dropped, named, rates, wrong := 0, 0, 0, 0, 0
	loaded := false
	for i := range w.probes {
		if ends(without[i]) == "" || w.connected && original[i].State == "invalid" {
			continue
		}
		compared++
		passed := ends(original[i]) != ""
		if !passed {
			dropped++
		}
		if passed == (ends(policy[i]) != "") {
			continue
		}
		pkt := w.probes[i].spec.Packet()
		_, reason := w.program.Eval(&pkt, ir.World{Member: w.members(t)})
		by := w.program.ReasonName(reason)
		if passed && w.structural(by) || original[i].State == "invalid" && strings.HasPrefix(by, "published") {
			named++ // explained by the checks that the policy adds, or because the policy also passes packets that are not translated
			continue
		}
		if !w.exact && !passed && w.fromLost(by) {
			named++ // explained: the policy's rule passes more than the rule that it comes from
			continue
		}
		if !loaded {
			w.clear(t)
			w.restore(t)
			loaded = true
		}
		switch met := w.met(t, w.probes[i].frame); {
		case !w.exact && slices.ContainsFunc(met, func(m metRule) bool { return m.lost }):
			named++
		case slices.ContainsFunc(met, func(m metRule) bool { return rateWords.MatchString(m.text) }):
			rates++
		default:
			if wrong++; wrong <= 8 {
				t.Errorf("%s: %s state %s at %s: passed %v by the rules, %v by the policy (%s); rules met: %v", target, w.probes[i].spec,
					original[i].State, ends(without[i]), passed, !passed, w.program.ReasonName(reason), met)
			}
		}
	}
	if loaded {
		w.clear(t)
		w.translate(t)
	}
	t.Logf("%s: %d packets compared, %d dropped by the rules; %d differ as the report names, %d at a rate, %d unnamed", target, compared, dropped, named, rates, wrong)
	if wrong > 0 {
		t.Logf("policy:\n%s", w.result.Policy)
	}
	if compared < w.packets/2 {
		t.Errorf("only %d packets compared", compared)
	}
}

var rateWords = regexp.MustCompile(`-m (limit|hashlimit|recent|statistic)|limit rate|"limit"`)

// metRule is a rule that a packet met, and whether the report names it.
type metRule struct {
	place, text string
	lost        bool
}

func (m metRule) String() string { return m.place + ": " + m.text }

// met sends a single packet, and returns the rules whose counters change.
func (w *wire) met(t *testing.T, frame []byte) (list []metRule) {
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Fatal(err)
	}
	before := w.counters(t)
	w.fates(t, [][]byte{frame})
	after := w.counters(t)
	for i := range after {
		if i < len(before) && before[i].packets != after[i].packets {
			list = append(list, metRule{after[i].place, after[i].text, w.named(after[i])})
		}
	}
	return list
}

// counter is the packet counter of a rule.
type counter struct {
	file, place, text string
	line              int
	packets           string
}

// named reports whether the report names a rule as lost.
func (w *wire) named(c counter) bool {
	return slices.ContainsFunc(w.result.Lost, func(r importer.Remark) bool {
		if c.line > 0 {
			return r.File == c.file && (r.Line <= c.line && c.line <= r.Last)
		}
		chain, _, _ := strings.Cut(c.place, ", handle")
		return r.Place == c.place || r.Place == chain // the policy of an nft chain has no counter
	})
}

// fromLost reports whether a rule of the policy comes from a rule that the report names.
func (w *wire) fromLost(rule string) bool {
	_, line, _ := strings.Cut(w.result.Policy, "{name: "+rule+", ")
	line, _, _ = strings.Cut(line, "\n")
	_, origin, found := strings.Cut(line, "}  # ")
	return found && slices.ContainsFunc(w.result.Lost, func(r importer.Remark) bool {
		if r.Line == 0 {
			return strings.Contains(origin, r.Place)
		}
		for _, m := range originLines.FindAllStringSubmatch(origin, -1) {
			first, _ := strconv.Atoi(m[2])
			last, err := strconv.Atoi(m[3])
			if err != nil {
				last = first
			}
			if m[1] == filepath.Base(r.File) && first <= r.Last && r.Line <= last {
				return true
			}
		}
		return false
	})
}

// originLines matches the lines of a file that a rule of the policy names as its origin.
var originLines = regexp.MustCompile(`([^ :]+):(\d+)(?:-(\d+))?`)

// translate loads the rules that translate addresses. These rules must stay besides the policy.
func (w *wire) translate(t *testing.T) {
	for _, s := range w.sources {
		load, _ := w.loader(s.Name)
		switch s.Name {
		case "ipset":
			run(t, string(s.Data), load...)
		case "nft":
			w.translateNft(t, s)
		default:
			if _, nat, ok := strings.Cut(string(s.Data), "*nat\n"); ok {
				nat, _, _ = strings.Cut(nat, "COMMIT\n")
				run(t, "*nat\n"+nat+"COMMIT\n", load...)
			}
		}
	}
}

// translateNft loads the nft chains that translate addresses, and the objects that they may refer to.
func (w *wire) translateNft(t *testing.T, s importer.Source) {
	var kept []map[string]map[string]any
	nat, some := map[string]bool{}, false
	for _, o := range listed(t, string(s.Data)) {
		chain, rule := o["chain"], o["rule"]
		key := func(of map[string]any, name string) string { return fmt.Sprint(of["family"], of["table"], of[name]) }
		switch {
		case chain != nil:
			keep := chain["hook"] == nil || chain["type"] == "nat"
			some = some || chain["type"] == "nat"
			if nat[key(chain, "name")] = keep; !keep {
				continue
			}
		case rule != nil && !nat[key(rule, "chain")]:
			continue
		}
		kept = append(kept, o)
	}
	data, err := json.Marshal(map[string]any{"nftables": kept})
	if err != nil {
		t.Fatal(err)
	}
	if some {
		run(t, string(data), "nft", "-j", "-f", "-")
	}
}

// counts matches the counter of a rule, or of a chain's policy.
var counts = regexp.MustCompile(`^(?:\[(\d+):\d+\] (-A .*)|(:\S+ (?:DROP|ACCEPT)) \[(\d+):\d+\])$`)

// counters reads the counters of all rules of the input.
func (w *wire) counters(t *testing.T) (list []counter) {
	for _, s := range w.sources {
		switch s.Name {
		case "ipset":
		case "nft":
			for _, o := range listed(t, output(t, "nft", "-j", "list", "ruleset")) {
				if r := o["rule"]; r != nil {
					place := fmt.Sprintf("table %v %v, chain %v, handle %v", r["family"], r["table"], r["chain"], r["handle"])
					packets, text := "", ""
					expr, _ := r["expr"].([]any)
					for _, e := range expr {
						m, _ := e.(map[string]any)
						if c, ok := m["counter"].(map[string]any); ok {
							packets = fmt.Sprint(c["packets"])
							continue
						}
						b, _ := json.Marshal(e)
						text += string(b)
					}
					if t := fmt.Sprint(r["table"]); t != "judge" && t != "witness" {
						list = append(list, counter{file: "nft", place: place, text: text, packets: packets})
					}
				}
			}
		default:
			// the lines are those that were imported, but with counters
			number := 0
			for line := range strings.SplitSeq(output(t, w.variant(s.Name), "-c"), "\n") {
				number++
				if m := counts.FindStringSubmatch(line); m != nil {
					list = append(list, counter{file: s.Name, place: fmt.Sprintf("%s:%d", s.Name, number), line: number, text: m[2] + m[3], packets: m[1] + m[4]})
				}
			}
		}
	}
	return list
}

// variant returns the name of a tool in the variant that the case requires.
func (c *testCase) variant(input string) string {
	_, save := c.loader(input)
	return save[0]
}

func output(t *testing.T, command ...string) string {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return string(out)
}

// listed returns the objects of a listing of nft.
func listed(t *testing.T, text string) (list []map[string]map[string]any) {
	t.Helper()
	var doc struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Objects
}

// counted returns the inputs as the tools print them. For nft, they are JSON in which each rule has a counter.
func (c *testCase) counted(t *testing.T) ([]importer.Source, importer.Format) {
	t.Helper()
	if c.section("nft") == "" {
		return c.saved(t)
	}
	text := apart(t, "nft -f - && nft -j list ruleset", byNumber.ReplaceAllString(c.section("nft"), "${1}${2}name${3}"))
	objects := listed(t, text)
	for _, o := range objects {
		if r := o["rule"]; r != nil {
			expr, _ := r["expr"].([]any)
			r["expr"] = withCounter(expr)
		}
	}
	data, err := json.Marshal(map[string]any{"nftables": objects})
	if err != nil {
		t.Fatal(err)
	}
	return []importer.Source{{Name: "nft", Data: []byte(apart(t, "nft -j -f - && nft -j list ruleset", string(data)))}}, importer.Nft
}

var byNumber = regexp.MustCompile(`(^|[^.\w]\s*)\b(iif|oif)(\s+(?:!=\s*|==\s*)?["{])`)

// withCounter inserts a counter before the verdict of a rule, and removes the rule's own counter.
func withCounter(expr []any) (out []any) {
	expr = slices.DeleteFunc(slices.Clone(expr), func(e any) bool { m, _ := e.(map[string]any); _, is := m["counter"]; return is })
	ends := []string{"accept", "drop", "reject", "return", "jump", "goto", "vmap", "dnat", "snat", "masquerade", "redirect", "notrack", "synproxy", "tproxy", "queue", "log"}
	at := slices.IndexFunc(expr, func(e any) bool {
		m, _ := e.(map[string]any)
		return slices.ContainsFunc(ends, func(n string) bool { _, is := m[n]; return is })
	})
	if at < 0 {
		at = len(expr)
	}
	return slices.Insert(expr, at, any(map[string]any{"counter": map[string]any{"packets": 0, "bytes": 0}}))
}

// apart runs a script in a new network namespace, which ends with the script.
func apart(t *testing.T, script, stdin string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, stderr.String())
	}
	return string(out)
}

// restore loads the original rules, in the form in which the tools printed them.
func (w *wire) restore(t *testing.T) {
	for _, s := range w.sources {
		load, _ := w.loader(s.Name)
		if s.Name == "nft" {
			load = []string{"nft", "-j", "-f", "-"}
		}
		run(t, string(s.Data), load...)
	}
}

// clear removes the original rules.
func (w *wire) clear(t *testing.T) {
	for _, s := range slices.Backward(w.sources) {
		load, _ := w.loader(s.Name)
		switch s.Name {
		case "ipset":
			run(t, "", "ipset", "destroy")
		case "nft":
			for _, o := range listed(t, string(s.Data)) {
				if table := o["table"]; table != nil {
					exec.Command("nft", "delete", "table", fmt.Sprint(table["family"]), fmt.Sprint(table["name"])).Run() // it may be gone
				}
			}
		default:
			var b strings.Builder
			for line := range strings.SplitSeq(string(s.Data), "\n") {
				if strings.HasPrefix(line, "*") || line == "COMMIT" {
					b.WriteString(line + "\n")
				} else if words := strings.Fields(line); len(words) > 1 && line[0] == ':' && words[1] != "-" {
					b.WriteString(words[0] + " ACCEPT [0:0]\n")
				}
			}
			run(t, b.String(), load...)
		}
	}
}
