// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

var (
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	one  = netip.MustParsePrefix("192.0.2.1/32")
)

// ban returns a statement. Its time and its end are in seconds after noon; an end of 0 makes a lift.
func ban(origin string, at, until int) Statement {
	s := Statement{Origin: origin, Seq: NextSequence(noon.Add(time.Duration(at)*time.Second), 0)}
	if until != 0 {
		s.Until = noon.Add(time.Duration(until) * time.Second).UnixMilli()
	}
	return s
}

func recordOf(list ...Statement) Record {
	r := Record{Prefix: one}
	for _, s := range list {
		r = Merge(r, Record{one, []Statement{s}})
	}
	return r
}

// TestEffect has rows of statements. Each row has the second after noon until which node "me" must drop the prefix; 0 means never.
func TestEffect(t *testing.T) {
	for _, test := range []struct {
		name      string
		record    Record
		reporters int
		want      int
	}{
		{"the latest end wins", recordOf(ban("a", 0, 60), ban("b", 1, 30)), 1, 60},
		{"whoever said it last", recordOf(ban("a", 0, 60), ban("a", 1, 30)), 1, 60},
		{"a lift of one's own", recordOf(ban("a", 0, 60), ban("a", 1, 0)), 1, 0},
		{"a lift that comes first", recordOf(ban("a", 1, 0), ban("a", 0, 60)), 1, 0},
		{"a ban after the lift", recordOf(ban("a", 0, 60), ban("a", 1, 0), ban("a", 2, 40)), 1, 40},
		{"the shorter ban outlives a lift between", recordOf(ban("a", 0, 60), ban("a", 2, 40), ban("a", 1, 0)), 1, 40},
		{"nobody lifts another's", recordOf(ban("a", 0, 60), ban("b", 1, 0)), 1, 60},
		{"but the controller", recordOf(ban("a", 0, 60), ban(Controller, 1, 0)), 1, 0},
		{"its own lift of what others ban", recordOf(ban("a", 0, 60), ban("me", 1, 0)), 1, 0},
		{"its own lift before others ban", recordOf(ban("a", 1, 60), ban("me", 0, 0)), 1, 60},
		{"its own statement", recordOf(ban("me", 0, 60)), 1, 0},
		{"one of two reporters", recordOf(ban("a", 0, 60)), 2, 0},
		{"two of two", recordOf(ban("a", 0, 60), ban("b", 1, 30)), 2, 30},
		{"one that says it twice", recordOf(ban("a", 0, 60), ban("a", 1, 30)), 2, 0},
		{"the controller alone", recordOf(ban(Controller, 0, 60)), 2, 60},
	} {
		e, ok := test.record.Effect(noon.Add(5*time.Second), "me", test.reporters)
		got := 0
		if ok {
			got = int(e.Until.Sub(noon).Seconds())
		}
		if got != test.want {
			t.Errorf("%s: banned until %d, want %d", test.name, got, test.want)
		}
	}
}

// TestCheck uses statements that no origin may make.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		prefix string
		Statement
		want bool
	}{
		{"192.0.2.0/24", ban("a", 0, 60), true},
		{"192.0.2.0/23", ban("a", 0, 60), false},
		{"192.0.2.0/25", ban("a", 0, 60), false}, // nodes may not ban this length, because a set has only 8 lengths
		{"192.0.2.0/25", ban(Controller, 0, 60), true},
		{"2001:db8::/56", ban("a", 0, 60), true},
		{"2001:db8::/60", ban("a", 0, 60), false},
		{"192.0.0.0/16", ban(Controller, 0, 60), true},
		{"2001:db8::/48", ban("a", 0, 60), true},
		{"2001:db8::/47", ban("a", 0, 60), false},
		{"192.0.2.1/32", ban("a", 60, 90), false},                       // the statement is from the future
		{"192.0.2.1/32", ban("a", 0, int(Longest.Seconds())+1), false},  // the ban is too long
		{"192.0.2.1/32", ban("a", -60, -1), false},                      // the ban is over
		{"192.0.2.1/32", ban("a", -int(Longest.Seconds())-1, 0), false}, // the lift is old
		{"192.0.2.1/32", ban("a", 0, 0), true},
		{"::ffff:192.0.2.1/128", ban("a", 0, 60), false},
	} {
		err := CheckStatement(netip.MustParsePrefix(test.prefix), &test.Statement, noon)
		if (err == nil) != test.want {
			t.Errorf("%s %v: %v, want %v", test.prefix, test.Statement, err, test.want)
		}
	}
	if err := CheckStatement(netip.MustParsePrefix("192.0.2.1/24"), &Statement{}, noon); err == nil {
		t.Error("a prefix with bits of a host is taken")
	}
}

// TestAdmit fills a record: with one origin whose ends become earlier, and with many origins.
func TestAdmit(t *testing.T) {
	r, refused := Record{Prefix: one}, 0
	for i := range 10 {
		after, err := Admit(r, ban("a", i, 100-i))
		if r = after; err != nil {
			refused++
		}
	}
	if len(r.Statements) != maxOfOrigin || refused != 10-maxOfOrigin {
		t.Errorf("one origin has %d statements, %d were refused", len(r.Statements), refused)
	}
	var err error
	for i := range 100 {
		r, err = Admit(r, ban(fmt.Sprint("n", i), i, 100))
	}
	if len(r.Statements) != maxBans || !errors.Is(err, ErrEnough) {
		t.Errorf("the record has %d statements: %v", len(r.Statements), err)
	}
	if r, err = Admit(r, ban(Controller, 99, 0)); err != nil || len(r.Statements) != 1 {
		t.Errorf("the controller's lift leaves %v: %v", r.Statements, err)
	}
}

// TestAdmitLifts sends a lift before its ban. The ban must then be void. After that, nodes ban and lift in turn, and lift prefixes that they have not
// banned. None of this may prevent a node's ban until the record has its greatest size.
func TestAdmitLifts(t *testing.T) {
	r, _ := Admit(Record{Prefix: one}, ban("a", 0, 1000))
	early, err := Admit(r, ban("b", 2, 0))
	if after, late := Admit(early, ban("b", 1, 1000)); err != nil || late != nil || !after.Equal(early) {
		t.Errorf("a ban after its lift: %v, %v, the record has %v", err, late, after.Statements)
	}
	for i := range 300 {
		if early, err = Admit(early, ban(fmt.Sprint("m", i), i, 0)); err != nil || len(early.Statements) > maxEarlyLifts {
			t.Fatalf("lifts without bans: %v, the record has %d statements", err, len(early.Statements))
		}
	}
	for i := range maxBans - 1 {
		if early, err = Admit(early, ban(fmt.Sprint("n", i), i, 1000)); err != nil {
			t.Fatalf("a ban after lifts without bans: %v", err)
		}
	}
	for i := range 300 {
		name := fmt.Sprint("n", i)
		after, err := Admit(r, ban(name, i, 1000))
		if err != nil && i < 2*maxBans {
			t.Fatalf("after %d lifts: %v", i, err)
		}
		if r, err = Admit(after, ban(name, i+1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.Statements) > MaxStatements {
		t.Errorf("the record has %d statements, and nobody reads more than %d", len(r.Statements), MaxStatements)
	}
}

// TestMergeAnyOrder merges any three statements of a list, grouped in both ways. Some statements differ only in their reason or signature.
func TestMergeAnyOrder(t *testing.T) {
	var list []Record
	for _, origin := range []string{"a", "b", Controller} {
		for _, until := range []int{0, 30, 60} {
			for _, reason := range []string{"", "x"} {
				s := ban(origin, 1, until)
				s.Reason = reason
				list = append(list, recordOf(s))
			}
		}
	}
	for _, a := range list {
		for _, b := range list {
			ab := Merge(a, b)
			if len(ab.Statements) == 0 || !ab.Equal(Merge(b, a)) {
				t.Fatalf("%v and %v: %v, the other way %v", a, b, ab, Merge(b, a))
			}
			for _, c := range list {
				if x, y := Merge(ab, c), Merge(a, Merge(b, c)); !x.Equal(y) {
					t.Fatalf("%v, %v, %v: %v, grouped otherwise %v", a, b, c, x, y)
				}
			}
		}
	}
}

// TestAllowance uses an allowance of 10 statements a second, with bursts of 20.
func TestAllowance(t *testing.T) {
	a := Allowance{Rate: 10, Burst: 2}
	taken := func(at time.Duration) (n int) {
		for a.Take(noon.Add(at), 1) {
			n++
		}
		return n
	}
	if first, later, long := taken(0), taken(time.Second), taken(time.Hour); first != 20 || later != 10 || long != 20 {
		t.Errorf("%d, then %d after a second and %d after an hour, want 20, 10, 20", first, later, long)
	}
}
