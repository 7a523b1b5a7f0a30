// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/internal/os/instance"
	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// The limits of the store.
const (
	mostReports = 100
	mostBytes   = 64 << 20 // the largest size of reports and captures together
)

// ErrUnknown is the error for an attack without a report.
var ErrUnknown = errors.New("there is no report of this attack")

// Store is a directory with the reports of one instance.
type Store struct{ dir string }

// InState returns the Store of an instance in the state directory.
func InState(state, bpffs, standard string) Store {
	return Store{filepath.Join(state, instance.With("attacks", bpffs, standard))}
}

// Kinds of files, by the suffix after the ID.
const (
	reportFile  = ".json"
	captureFile = ".pcapng"
)

// Names of files that belong to no attack.
const (
	usualName    = "usual.json"
	baselineName = "baseline.pcapng"
	openingsName = "openings.pcapng"
	learningName = "learning.json"
)

// id is the pattern of IDs. A text becomes part of a path only if it matches.
var id = wording.Regexp(`^[0-9]{8}-[0-9]{6}$`)

// Report reads the report of an attack. It returns ErrUnknown when there is none.
func (s Store) Report(of string) (*Report, error) {
	if !id().MatchString(of) {
		return nil, ErrUnknown
	}
	var r Report
	err := s.readJSON(of+reportFile, &r)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return &r, nil
}

func (s Store) readJSON(name string, to any) error {
	if err := s.check(); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.dir, name), err)
	}
	return nil
}

// List returns the attacks, the latest first. It skips reports that cannot be read.
func (s Store) List() ([]Summary, error) {
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	list := []Summary{}
	for _, id := range ids {
		if r, err := s.Report(id); err == nil {
			list = append(list, r.Summary())
		}
	}
	return list, nil
}

// ids returns the IDs of all reports, the latest first.
func (s Store) ids() (ids []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("attacks: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), reportFile); ok && id().MatchString(name) {
			ids = append(ids, name)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, nil
}

// Capture opens the capture of an attack. It returns ErrUnknown when there is none.
func (s Store) Capture(of string) (*os.File, error) {
	if !id().MatchString(of) {
		return nil, ErrUnknown
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(s.dir, of+captureFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnknown
	}
	return f, err
}

// save writes a report and, if there are packets, its capture. It writes the capture first, so that a report never lacks its capture.
func (s Store) save(r *Report, packets []sample.Sample) error {
	if len(packets) > 0 {
		if err := s.writePackets(r.ID+captureFile, packets); err != nil {
			return err
		}
	}
	return s.writeJSON(r.ID+reportFile, r)
}

func (s Store) writeJSON(name string, of any) error {
	return s.replace(name, func(f *os.File) error {
		e := json.NewEncoder(f)
		e.SetIndent("", "  ")
		return e.Encode(of)
	})
}

func (s Store) writePackets(name string, packets []sample.Sample) error {
	return s.replace(name, func(f *os.File) error {
		w, err := sample.NewFileWriter(f, sample.FrameBytes, packets[0].Device)
		for i := 0; err == nil && i < len(packets); i++ {
			err = w.Write(packets[i], packets[i].Reason+": "+packets[i].Verdict)
		}
		return err
	})
}

// replace replaces a file in one step: after an error the old file remains.
func (s Store) replace(name string, write func(*os.File) error) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("attacks: %w", err)
	}
	if err := s.check(); err != nil {
		return err
	}
	if err := safefile.ReplaceWith(filepath.Join(s.dir, name), 0o600, write); err != nil {
		return fmt.Errorf("attacks: %w", err)
	}
	return nil
}

// check returns an error when another user could have put a file or link into the directory. A missing directory is no error.
func (s Store) check() error {
	if err := safefile.Ours(s.dir); err != nil {
		return fmt.Errorf("attacks: %w", err)
	}
	return nil
}

// Teach writes the packet rates of quiet seconds. The next Watcher takes these as the usual rates instead of learning them. It needs at least
// leastSeconds rates.
func (s Store) Teach(seconds []float64) error { return s.writeJSON(usualName, usual{Seconds: seconds}) }

// clean removes the unfinished files of a killed daemon, and a capture without its report.
func (s Store) clean() {
	if s.check() != nil {
		return
	}
	safefile.Sweep(s.dir)
	captures, _ := filepath.Glob(filepath.Join(s.dir, "*"+captureFile))
	for _, f := range captures {
		of := strings.TrimSuffix(f, captureFile)
		if _, err := os.Lstat(of + reportFile); id().MatchString(filepath.Base(of)) && errors.Is(err, fs.ErrNotExist) {
			os.Remove(f)
		}
	}
}

// prune removes the oldest reports when there are too many or they are too large. It keeps the latest.
func (s Store) prune() error {
	ids, err := s.ids()
	if err != nil {
		return err
	}
	total := int64(0)
	for i, id := range ids {
		for _, kind := range []string{reportFile, captureFile} {
			if info, err := os.Stat(filepath.Join(s.dir, id+kind)); err == nil {
				total += info.Size()
			}
		}
		if i > 0 && (i >= mostReports || total > mostBytes) {
			err = errors.Join(err, os.Remove(filepath.Join(s.dir, id+reportFile)))
			if e := os.Remove(filepath.Join(s.dir, id+captureFile)); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// packets returns the packets of a written capture up to the first error. The verdicts of the packets are lost.
func (s Store) packets(name string) (list []sample.Sample) {
	if s.check() != nil {
		return nil
	}
	r, err := sample.OpenFile(filepath.Join(s.dir, name))
	if err != nil {
		return nil
	}
	defer r.Close()
	for len(list) < mostLearned {
		p, err := r.Read()
		if err != nil {
			return list
		}
		p.Frame = bytes.Clone(p.Frame)
		list = append(list, p)
	}
	return list
}
