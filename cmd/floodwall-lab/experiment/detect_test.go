// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	mdns "github.com/miekg/dns"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/report"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/cmd/floodwall-lab/traffic"
	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// buildDir is a directory that TestMain removes.
var buildDir string

// built is a directory with this program. The program is built once.
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

// TestDetectPolicy checks that the policy compiles.
func TestDetectPolicy(t *testing.T) {
	if _, err := control.CompileSource("policy", []byte(detectPolicy)); err != nil {
		t.Error(err)
	}
}

// TestDetectNames checks that the names of rows differ, and that honest traffic and attacks have different names.
func TestDetectNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range detectCases() {
		if seen[c.name()] || !regexp.MustCompile(`^(honest|attack)/[a-z-]+$`).MatchString(c.name()) || c.Label == "" || c.Lasts == 0 {
			t.Errorf("case %s: %q, %v", c.name(), c.Label, c.Lasts)
		}
		seen[c.name()] = true
	}
}

// TestAnswerDNS decodes the answer with another implementation.
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

// TestDetectAccount checks that XDP's drops of honest packets are distinguished from the losses of a queue.
func TestDetectAccount(t *testing.T) {
	c := &detectCase{Model: &traffic.Model{}}
	before := &detectCounts{sent: map[string]uint64{"http": 10}, passed: map[string]uint64{"http": 10, "game": 7}}
	after := &detectCounts{
		sent: map[string]uint64{"http": 110}, passed: map[string]uint64{"http": 110, "game": 7 + 1600, "dns": 100},
		honest: lab.DriverCounts{Received: 2180, Dropped: 380}, attack: lab.DriverCounts{Received: 4900, Dropped: 2450},
	}
	got := c.account(before, after, map[string]uint64{"game": 2000, "dns": 100}, 5000)
	want := rig.Reading{
		"attack-packets": 5000, "attack-lost-packets": 100, "attack-dropped": 0.5, "xdp-dropped-packets": 2450 + 380, "answers": 0,
		"honest-packets": 2200, "honest-lost-packets": 20, "honest-dropped": 380. / 2180, "worst-class-dropped": 400. / 2000 * 380 / 400,
	}
	if diff := cmp.Diff(want, got); diff != "" || c.worst != "game 19.00%" {
		t.Errorf("worst %s; (-want +got):\n%s", c.worst, diff)
	}
}

func TestDetectTable(t *testing.T) {
	s := &rig.Session{Options: rig.Options{Rounds: 3}, Outcome: &report.Outcome{Name: "detect"}}
	d := &detection{Builder: &rig.Builder{Session: s}}
	cases := []*detectCase{
		{Model: &traffic.Model{Name: "crowd", Label: "many", Honest: true}, worst: "game 55.56%"},
		{Model: &traffic.Model{Name: "ntp", Label: "answers"}},
		{Model: &traffic.Model{Name: "recorded", Label: "real"}},
	}
	table := d.table(cases)
	quiet := rig.Reading{"honest-dropped": 0, "daemon-cpu": 0, "daemon-B": 0, "attack-dropped": 0, "packets/s": 0}
	with := func(more rig.Reading) rig.Reading {
		read := maps.Clone(quiet)
		maps.Copy(read, more)
		return read
	}
	table.Rows[0].Rounds = []rig.Reading{{"calls": 1, "seen-s": 3, "honest-dropped": 0.5, "packets/s": 1000, "daemon-cpu": 0, "daemon-B": 0}}
	table.Rows[1].Rounds = []rig.Reading{
		with(rig.Reading{
			"calls": 1, "seen-s": 2, "named-s": 3, "suggested-s": 4, "dropped-s": 5, "attack-dropped": 0.5, "attack-dropped-later": 0.5, "packets/s": 30_000,
		}),
		with(rig.Reading{"calls": 1, "seen-s": 1, "attack-dropped-later": 0.6}),
		with(rig.Reading{"calls": 0, "attack-dropped-later": 0, "late-ns": 1e9}),
	}
	table.Rows[2].Missing = "no capture"
	table.Publish(s.Outcome)
	var got []string
	for _, row := range s.Outcome.Tables[0].Rows {
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"honest/crowd: many|1|3.0|never|never|never|||50.00%|game 55.56%|1.0|0.00%|0|",
		"attack/ntp: answers|1|2.0|never|never|never|0.00%|50.00%|0.00%||0.0|0.00%|0|~",
		"attack/recorded: real|||||||||||||no capture",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, m := range s.Outcome.Results[1].Metrics {
		if m.Unit == "named-s" && len(m.Samples) != 1 {
			t.Errorf("times that it was named: %v", m.Samples)
		}
	}
}

// TestDetectCounts runs a daemon without a learned state, which drops nothing, under honest traffic and an attack. It checks that both are counted.
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
