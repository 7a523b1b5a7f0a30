package experiment

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/internal/lab/report"
	"github.com/floodwall/floodwall/internal/lab/rig"
	"github.com/floodwall/floodwall/internal/lab/traffic"
	"github.com/floodwall/floodwall/test/testutil"
)

// buildDir is what TestMain removes.
var buildDir string

// built is a directory with this program, which is built once.
var built = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../../../scripts/go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", buildDir+"/", "github.com/floodwall/floodwall/cmd/floodwall").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return buildDir, nil
})

// findBuilt finds a program that is built for tests.
func findBuilt(program string) (string, error) {
	dir, err := built()
	return filepath.Join(dir, program), err
}

// TestDetectPolicy has the policy be one.
func TestDetectPolicy(t *testing.T) {
	if _, err := control.CompileSource("policy", []byte(detectPolicy)); err != nil {
		t.Error(err)
	}
}

// TestDetectNames has names of rows differ, and those that are honest differ from attacks.
func TestDetectNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range detectCases() {
		if seen[c.name()] || !regexp.MustCompile(`^(honest|attack)/[a-z-]+$`).MatchString(c.name()) || c.Label == "" || c.Lasts == 0 {
			t.Errorf("case %s: %q, %v", c.name(), c.Label, c.Lasts)
		}
		seen[c.name()] = true
	}
}

// TestAnswerDNS has another program read the answer.
func TestAnswerDNS(t *testing.T) {
	var query, answer mdns.Msg
	query.SetQuestion("www.example.net.", mdns.TypeA)
	text, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Unpack(answerDNS(nil, text)); err != nil || !answer.Response || answer.Id != query.Id || len(answer.Answer) != 1 {
		t.Errorf("%v, %v", &answer, err)
	}
	if got := answerDNS(nil, []byte("none")); got != nil {
		t.Errorf("%q", got)
	}
}

// TestDetectAccount tells what XDP dropped of honest packets from what a queue lost.
func TestDetectAccount(t *testing.T) {
	v := &detectVisit{}
	sent := detectSent{
		usual:  traffic.Sent{By: map[string]uint64{"game": 1000, "dns": 100}},
		more:   traffic.Sent{By: map[string]uint64{"game": 1000}},
		attack: traffic.Sent{Frames: 5000},
	}
	before := classCounts{sent: map[string]uint64{"http": 10}, passed: map[string]uint64{"http": 10, "game": 7}}
	after := classCounts{sent: map[string]uint64{"http": 110}, passed: map[string]uint64{"http": 110, "game": 7 + 1600, "dns": 100}}
	v.account(sent, before, after, lab.DriverCounts{Received: 2180, Dropped: 380}, lab.DriverCounts{Received: 4900, Dropped: 2450})
	want := detectVisit{
		attack: wire{sent: 5000, dropped: 2450, lost: 100}, honest: wire{sent: 2200, dropped: 380, lost: 20},
		classes: []classLoss{{"dns", 100, 0}, {"game", 2000, 400}, {"http", 100, 0}},
	}
	if diff := cmp.Diff(want, *v, cmp.AllowUnexported(detectVisit{}, wire{}, classLoss{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if share, name := v.worst(); name != "game" || share < 0.189 || share > 0.191 || v.attack.share() != 0.5 {
		t.Errorf("worst %s %f, attack %f", name, share, v.attack.share())
	}
}

func TestDetectTable(t *testing.T) {
	s := &rig.Session{Options: rig.Options{Rounds: 3}, Outcome: &report.Outcome{Name: "detect"}}
	b := &detectBuilder{Builder: rig.Builder{Session: s}}
	second := time.Second
	b.cases = []*detectCase{
		{Model: &traffic.Model{Name: "crowd", Label: "many", Honest: true}, visits: []*detectVisit{
			{calls: 1, seen: 3 * second, honest: wire{sent: 1000, dropped: 500}, classes: []classLoss{{"game", 900, 500}}, lasted: second},
		}},
		{Model: &traffic.Model{Name: "ntp", Label: "answers"}, visits: []*detectVisit{
			{calls: 1, seen: 2 * second, named: 3 * second, suggested: 4 * second, dropped: 5 * second, attack: wire{sent: 30_000, dropped: 15_000}, later: lab.DriverCounts{Received: 100, Dropped: 50}, lasted: second},
			{calls: 1, seen: second, later: lab.DriverCounts{Received: 100, Dropped: 60}, lasted: second},
			{lasted: second, late: second},
		}},
		{Model: &traffic.Model{Name: "recorded", Label: "real"}, missing: "no capture"},
	}
	b.publish()
	var got []string
	for _, row := range b.Outcome.Tables[0].Rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"honest/crowd: many|1|3.0|never|never|never|||50.00%|game 55.56%|<= 0.00 MISSED|1.0|0.00%|0|",
		"attack/ntp: answers|1|2.0|never|never|never|0.00%|50.00%|0.00%||<= 0.00 met|0.0|0.00%|0|~",
		"attack/recorded: real||||||||||||||no capture",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, m := range b.Outcome.Results[1].Metrics {
		if m.Unit == "named-s" && len(m.Samples) != 1 {
			t.Errorf("times that it was named: %v", m.Samples)
		}
	}
}

// TestDetectCounts has a daemon that has learned nothing, which drops nothing, see honest clients and an attack, and counts both.
func TestDetectCounts(t *testing.T) {
	testutil.RequireRoot(t)
	testutil.RequireTool(t, "nft")
	o := tiny(t)
	o.Rows = regexp.MustCompile("^(honest/http|attack/syn)$")
	r, err := Run(t.Context(), []string{"detect"}, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range r.Experiments[0].Results {
		got := map[string]float64{}
		for _, m := range result.Metrics {
			got[m.Unit] = m.Value
		}
		if got["honest-packets"] == 0 || got["requests"] == 0 || got["xdp-dropped-packets"] != 0 || got["daemon-B"] == 0 {
			t.Errorf("%s: %v", result.Name, got)
		}
		if attack := got["attack-packets"] > 0; attack != (result.Name == "detect/attack/syn") {
			t.Errorf("%s: %v packets of an attack", result.Name, got["attack-packets"])
		}
	}
}
