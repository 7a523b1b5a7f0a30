// SPDX-License-Identifier: Apache-2.0

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

// Options are the options of the apply, in the form of its flags.
type Options struct {
	Target  string   `json:"target,omitempty"`
	Mode    string   `json:"mode,omitempty"`
	Kept    string   `json:"kept_mode,omitempty"` // the mode that an earlier apply asked for
	Devices []string `json:"devices,omitempty"`   // replace the devices of the policy
	BPFFS   string   `json:"bpffs,omitempty"`     // identifies the instance; a store belongs to one instance
}

// Source is the data from which a copy is made.
type Source struct {
	Policy   *policy.Policy
	Text     []byte // the text from which Policy was parsed
	Options  Options
	Failsafe string // the result of NewFailsafe
}

// Staged is a new copy that is complete on the disk but not in use yet. Until Commit, Hold or Discard no other process can change the store. So
// copies are made in the same order as applies.
type Staged struct {
	store  Store
	id     string
	source Source
	lists  map[string]savedList // all files, by their names in the policy
	unlock func()               // nil after Commit, Hold or Discard
}

// The files of a copy, besides the copies of list files.
const (
	policyFile   = "policy.yaml"
	manifestFile = "boot.json"
	failsafeFile = "failsafe.yaml"
)

// format is the version of the format of copies. It increases when a program that knows only the previous format cannot read a copy. Format 1, which
// is still supported, has only the files of address sets, and no fail-safe.
const format = 2

// manifest is the content of boot.json.
type manifest struct {
	Format  int                  `json:"format"`
	Policy  string               `json:"policy"` // the path of the operator's file
	Saved   time.Time            `json:"saved"`
	SHA256  string               `json:"sha256"`
	Lists   map[string]savedList `json:"lists,omitempty"`
	Options Options              `json:"options"`
}

// savedList is the copy of a list file. The checksum detects a damaged file, which could otherwise become a policy with fewer entries.
type savedList struct {
	Copy   string `json:"copy"` // the file name of the copy
	SHA256 string `json:"sha256"`
}

// Stage copies a policy and the files that it names. It can fail for lack of disk space, so the caller runs it before any change in the kernel. The
// caller then applies the policy, and calls Commit or, for a trial, Hold. After an error the store is unchanged.
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

// ID returns the id of the copy, for Use. The caller stores the id with the generation. With this id confirm and rollback find the copy of the
// generation that they keep.
func (st *Staged) ID() string { return st.id }

// Commit makes the copy the current one, which is loaded after a reboot.
func (st *Staged) Commit() error {
	defer st.release()
	return st.store.use(st.id)
}

// Hold keeps the copy for Use after a trial. It replaces an earlier copy that was never confirmed. Until Use the present copy is loaded after a
// reboot.
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
		os.Remove(st.store.dir) // succeeds only if the directory is empty
	}
}

func (st *Staged) release() {
	if st.unlock != nil {
		st.unlock()
		st.unlock = nil
	}
}

// write writes the copy, and returns when the copy is on the disk.
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

// ownedBy returns an error when the current copy belongs to another instance.
func (s Store) ownedBy(bpffs string) error {
	saved, err := s.Load()
	if err != nil || saved.Options.BPFFS == bpffs {
		return nil // a copy that cannot be read may be replaced
	}
	return &OtherInstanceError{Dir: filepath.Dir(s.dir), BPFFS: saved.Options.BPFFS}
}

// OtherInstanceError says that the policy for boot belongs to another instance.
type OtherInstanceError struct{ Dir, BPFFS string }

func (e *OtherInstanceError) Error() string {
	return fmt.Sprintf("the policy for boot in %s is that of the instance %s", e.Dir, e.BPFFS)
}

// Hint returns the remedy.
func (e *OtherInstanceError) Hint() string {
	return fmt.Sprintf("one instance of a host comes back at boot; `floodwall unload --bpffs %s --state %s` makes space for another",
		e.BPFFS, e.Dir)
}

func newID() string {
	var random [8]byte
	rand.Read(random[:]) // never fails according to its documentation
	return fmt.Sprintf("c%x", random)
}

func (st *Staged) writeFile(name string, content []byte) error {
	if err := safefile.Create(st.store.path(st.id, name), content, 0o600); err != nil {
		return fmt.Errorf("saving the policy for boot: %w", err)
	}
	return nil
}

// copyList copies a file that the policy names, unless it has already been copied.
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

// copyFile copies a file. It reads the copy back, and returns the SHA-256 of the copy.
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

// openList opens a file that the policy names. The file must be a regular file, because it is read more than once.
func (st *Staged) openList(ref policy.FileRef) (*os.File, error) {
	path := *ref.Name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(st.source.Policy.File), path)
	}
	info, err := os.Stat(path) // before the open, which for a pipe would wait for the other end
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
