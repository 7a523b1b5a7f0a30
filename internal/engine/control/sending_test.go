// SPDX-License-Identifier: Apache-2.0

package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/internal/engine/control"
	"github.com/floodwall/floodwall/internal/kernel/datapath"
	"github.com/floodwall/floodwall/internal/kernel/features"
	"github.com/floodwall/floodwall/policy"
)

// answered checks that clients can connect to the protected service over both families.
func (s *site) answered(when string) {
	s.Helper()
	for _, to := range []string{"10.0.0.2:80", "[fd00::2]:80"} {
		if err := s.exchange(to); err != nil {
			s.Errorf("%s: %s: %v", when, to, err)
		}
	}
}

// state returns the device's mode, and the warnings of lost answers in status.
func (s *site) state() (mode string, lost []string) {
	s.Helper()
	err := s.server.Do(func() error {
		status, err := s.Status(s.ctx)
		if err != nil {
			return err
		}
		for _, w := range status.Warnings {
			if strings.HasPrefix(w, control.AnswersLost) {
				lost = append(lost, w)
			}
		}
		mode = status.Devices[0].Mode
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return mode, lost
}

// TestPlainVeth makes clients of a protected service connect through a veth. In the first part the other end of the veth never has an XDP program; in
// the second part its program is removed.
func TestPlainVeth(t *testing.T) {
	if features.TCX() != nil { // without TCX, XDP answers nothing for a service of this host
		return
	}
	inSite(t, func(s *site) {
		defer s.unload()
		s.listen(80, false)
		if notes := strings.Join(s.protect("always").Notes, "\n"); !strings.Contains(notes, "so it runs in tc mode there") {
			t.Errorf("apply says %q", notes)
		}
		s.answered("plain from the beginning")
		s.unload()

		detach := s.takeReplies()
		s.protect("always")
		s.answered("with a program")
		if mode, lost := s.state(); mode != "native" || lost != nil {
			t.Errorf("with a program: mode %s, %v", mode, lost)
		}
		detach()
		if mode, lost := s.state(); mode != "native" || len(lost) != 1 {
			t.Errorf("the program has gone: mode %s, %v", mode, lost)
		}
		s.repairs("runs in tc mode, no more in native mode: device client does not send")
		s.answered("after the repair")
		if mode, lost := s.state(); mode != "tc" || lost != nil {
			t.Errorf("after the repair: mode %s, %v", mode, lost)
		}
		s.repairs("")

		s.ask(control.ApplyOptions{Mode: datapath.Native}, "what XDP answers is lost: device client does not send", "so these do not work there: web")
		s.ask(control.ApplyOptions{Confirm: time.Minute}, "so it runs in tc mode there")
		s.answered("on trial")
		if err := s.server.Do(func() error { _, err := s.Confirm(s.ctx); return err }); err != nil {
			t.Error(err)
		}
		s.answered("after the trial")

		// "off" has no answers, so the device runs in native mode until the rollback.
		for syn, before := range map[string]string{"always": "tc", "off": "native"} {
			s.protect(syn)
			if mode, _ := s.state(); mode != before {
				t.Errorf("syn: %s: mode %s, want %s", syn, mode, before)
			}
			if err := s.server.Do(func() error { _, err := s.Rollback(s.ctx); return err }); err != nil {
				t.Error(err)
			}
			s.answered("after a rollback from syn: " + syn)
			if mode, lost := s.state(); mode != "tc" || lost != nil {
				t.Errorf("after a rollback from syn: %s: mode %s, %v", syn, mode, lost)
			}
		}
	})
}

// repairs checks that a repair reports want, or that it does nothing if want is empty.
func (s *site) repairs(want string) {
	s.Helper()
	err := s.server.Do(func() error {
		r, err := s.Repair(s.ctx)
		if err == nil && (r.Any() != (want != "") || !strings.Contains(r.String(), want)) {
			s.Errorf("the repair says %q, want %q", r, want)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// ask applies a policy that protects the service web, and checks that the notes contain all of these texts.
func (s *site) ask(o control.ApplyOptions, wants ...string) {
	s.Helper()
	err := s.server.Do(func() error {
		p, err := policy.Parse("policy.yaml", []byte("devices: [client]\ndefault: pass\nservices: [{name: web, port: tcp/80, syn: always}]"))
		if err != nil {
			return err
		}
		applied, err := s.Apply(s.ctx, p, o)
		if err != nil {
			return err
		}
		for _, want := range wants {
			if notes := strings.Join(applied.Notes, "\n"); !strings.Contains(notes, want) {
				s.Errorf("apply says %q, want %q", notes, want)
			}
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
}
