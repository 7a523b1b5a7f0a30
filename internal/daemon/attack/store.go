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

// The bounds of what is kept.
const (
	mostReports = 100
	mostBytes   = 64 << 20 // of reports and captures together
)

// ErrUnknown is returned for an attack of which there is no report.
var ErrUnknown = errors.New("there is no report of this attack")

// Store is a directory with the reports of one instance.
type Store struct{ dir string }

// InState is the Store of an instance below the directory for state.
func InState(state, bpffs, standard string) Store {
	return Store{filepath.Join(state, instance.With("attacks", bpffs, standard))}
}

// Kinds of files, by the end of their names behind the ID.
const (
	reportFile  = ".json"
	captureFile = ".pcapng"
)

// Names of files that are of no attack.
const (
	usualName    = "usual.json"
	baselineName = "baseline.pcapng"
)

// id is what IDs look like. Nothing else becomes a part of a path.
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

// List lists the attacks, the latest first. A report that cannot be read is left out.
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

// ids are those of all reports, the latest first.
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

// save writes a report, and its capture unless there are no packets. The capture comes first: a report that is there has one.
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
			p := packets[i]
			err = w.Write(p, fmt.Sprintf("%s: %s", p.Reason, p.Verdict))
		}
		return err
	})
}

// replace writes a file in whole, or leaves the one before.
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

// check makes sure that nobody else can have put a file or a link into the directory. One that is not there is well.
func (s Store) check() error {
	if err := safefile.Ours(s.dir); err != nil {
		return fmt.Errorf("attacks: %w", err)
	}
	return nil
}

// Teach notes the packets a second of quiet times that a Watcher which begins later is to take for usual, in place of what it would learn
// itself. It needs leastSeconds of them.
func (s Store) Teach(seconds []float64) error { return s.writeJSON(usualName, usual{Seconds: seconds}) }

// clean removes what a killed daemon was about to write, and a capture whose report it did not come to.
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

// prune removes the oldest reports that are too many or too large. The latest stays.
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

// packets reads a capture that was written, as much of it as can be read. What became of the packets is not known any more.
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
		list = append(list, sample.Sample{Time: p.Time, Device: p.Device, Length: p.Length, Frame: bytes.Clone(p.Frame)})
	}
	return list
}
