package boot

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/floodwall/floodwall/internal/os/safefile"
	"github.com/floodwall/floodwall/policy"
)

// Options are the choices of the apply that comes back, as its flags have them.
type Options struct {
	Target  string   `json:"target,omitempty"`
	Mode    string   `json:"mode,omitempty"`
	Devices []string `json:"devices,omitempty"` // in place of the policy's
	BPFFS   string   `json:"bpffs,omitempty"`   // the instance; a store is that of one
}

// Source is what a copy is made of.
type Source struct {
	Policy   *policy.Policy
	Text     []byte // that Policy was read from
	Options  Options
	Failsafe string // as NewFailsafe has made it
}

// Staged is a new copy that is whole and on the disk, but that nothing reads yet. Until Commit, Hold or Discard no
// other process changes the store, so copies follow each other as applies do.
type Staged struct {
	store  Store
	id     string
	source Source
	lists  map[string]savedList // all files, by the name that the policy has for them
	unlock func()               // nil when it is done
}

// The files of a copy, besides those of the lists.
const (
	policyFile   = "policy.yaml"
	manifestFile = "boot.json"
	failsafeFile = "failsafe.yaml"
)

// format changes when a copy can no longer be read by who knew only the format before. Format 1, which is still read, has
// only the files of address sets, and no fail-safe.
const format = 2

// manifest is what boot.json holds.
type manifest struct {
	Format  int                  `json:"format"`
	Policy  string               `json:"policy"` // the operator's file
	Saved   time.Time            `json:"saved"`
	SHA256  string               `json:"sha256"`
	Lists   map[string]savedList `json:"lists,omitempty"`
	Options Options              `json:"options"`
}

// savedList is the copy of a list file. A disk that lost a part of it must not become a policy with less in it.
type savedList struct {
	Copy   string `json:"copy"` // its name
	SHA256 string `json:"sha256"`
}

// Stage copies a policy and the files that it names. It comes before anything is changed in the kernel, as it is what can fail
// for want of space; the caller then applies and calls Commit or, for a trial, Hold. An error leaves the store as it was.
func (s Store) Stage(ctx context.Context, src Source) (*Staged, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	st := &Staged{store: s, source: src, lists: map[string]savedList{}, unlock: unlock}
	s.prune("")
	if err := st.write(ctx); err != nil {
		st.Discard()
		return nil, err
	}
	return st, nil
}

// ID names the copy in Use. It belongs into what describes the generation, so that confirm and rollback know the copy
// of the generation that they leave running.
func (st *Staged) ID() string { return st.id }

// Commit makes the copy the one that comes back after a reboot.
func (st *Staged) Commit() error {
	defer st.release()
	return st.store.use(st.id)
}

// Hold keeps the copy for Use, in place of an earlier one that was never confirmed. Until then the one before comes
// back after a reboot.
func (st *Staged) Hold() error {
	defer st.release()
	if err := st.store.link(trial, st.id); err != nil {
		return err
	}
	st.store.prune("")
	return nil
}

// Discard removes the copy. It does nothing after Commit and Hold.
func (st *Staged) Discard() {
	if st.unlock == nil {
		return
	}
	defer st.release()
	if st.id != "" {
		os.RemoveAll(st.store.path(st.id))
	}
	if !st.store.Enabled() && st.store.target(trial) == "" {
		os.Remove(st.store.dir) // only when it is empty
	}
}

func (st *Staged) release() {
	if st.unlock != nil {
		st.unlock()
		st.unlock = nil
	}
}

// write makes the copy, and returns when the disk has it.
func (st *Staged) write(ctx context.Context) error {
	if err := st.store.ownedBy(st.source.Options.BPFFS); err != nil {
		return err
	}
	file, err := filepath.Abs(st.source.Policy.File)
	if err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	id := newID()
	if err := os.Mkdir(st.store.path(id), 0o700); err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	st.id = id
	for _, f := range st.source.Policy.Files() {
		if err := st.copyList(ctx, f); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(st.source.Text)
	text, err := json.MarshalIndent(manifest{
		format, file, time.Now().UTC(), hex.EncodeToString(sum[:]), st.lists, st.source.Options,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	return cmp.Or(
		st.writeFile(policyFile, st.source.Text),
		st.writeFile(failsafeFile, []byte(st.source.Failsafe)),
		st.writeFile(manifestFile, append(text, '\n')),
		syncDir(st.store.path(id)),
		syncDir(st.store.dir),
	)
}

// ownedBy is an error when the copy that comes back is that of another instance.
func (s Store) ownedBy(bpffs string) error {
	saved, err := s.Load()
	if err != nil || saved.Options.BPFFS == bpffs {
		return nil // what cannot be read is replaced
	}
	return &OtherInstanceError{Dir: filepath.Dir(s.dir), BPFFS: saved.Options.BPFFS}
}

// OtherInstanceError says that what comes back at boot belongs to another instance.
type OtherInstanceError struct{ Dir, BPFFS string }

func (e *OtherInstanceError) Error() string {
	return fmt.Sprintf("the policy for boot in %s is that of the instance %s", e.Dir, e.BPFFS)
}

// Hint says how to go on.
func (e *OtherInstanceError) Hint() string {
	return fmt.Sprintf("one instance of a host comes back at boot; `floodwall unload --bpffs %s --state %s` makes space for another",
		e.BPFFS, e.Dir)
}

func newID() string {
	var random [8]byte
	rand.Read(random[:]) // never fails, says its documentation
	return fmt.Sprintf("c%x", random)
}

func (st *Staged) writeFile(name string, content []byte) error {
	if err := safefile.Create(st.store.path(st.id, name), content, 0o600); err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	return nil
}

// copyList copies a file that the policy names, once.
func (st *Staged) copyList(ctx context.Context, ref policy.FileRef) error {
	if st.lists[*ref.Name].Copy != "" {
		return nil
	}
	list, err := st.openList(ref)
	if err != nil {
		return err
	}
	defer list.Close()
	name := fmt.Sprintf("list%d", len(st.lists)+1)
	sum, err := copyFile(ctx, st.store.path(st.id, name), list)
	if err != nil {
		return fmt.Errorf("saving %s for boot: %w", list.Name(), err)
	}
	st.lists[*ref.Name] = savedList{name, sum}
	return nil
}

// copyFile makes a file of what is in from, and returns the SHA-256 of what it reads back.
func copyFile(ctx context.Context, path string, from *os.File) (sum string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := inChunks(ctx, file, from); err != nil {
		return "", err
	}
	if err := file.Sync(); err != nil {
		return "", err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return sumOf(ctx, file)
}

// openList opens a file that the policy names, which must be one that can be read again.
func (st *Staged) openList(ref policy.FileRef) (*os.File, error) {
	path := *ref.Name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(st.source.Policy.File), path)
	}
	info, err := os.Stat(path) // before it is opened: to open a pipe waits for its other end
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file, so it cannot be saved for boot", path)
	}
	var list *os.File
	if err == nil {
		list, err = os.Open(path)
	}
	if err != nil {
		return nil, &policy.Error{
			File: st.source.Policy.File, Line: ref.Pos.Line, Col: ref.Pos.Col, Msg: fmt.Sprintf("%s: %v", ref.What, err),
		}
	}
	return list, nil
}
