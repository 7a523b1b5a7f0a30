// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/floodwall/floodwall/policy"
)

// Saved is the policy that is loaded after a reboot.
type Saved struct {
	ID      string
	File    string // the operator's file, only for messages: it may have changed or be gone
	Text    []byte // the text of the policy
	Time    time.Time
	Options Options

	format int
	lists  map[string]string // the paths of the copies, by the file name in the policy
}

// Load reads the current copy. It returns ErrNone when there is none.
func (s Store) Load() (*Saved, error) {
	if err := s.check(); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNone
	} else if err != nil {
		return nil, err
	}
	for {
		id := s.target(current)
		if id == "" {
			return nil, ErrNone
		}
		saved, err := s.load(id)
		if err != nil && s.target(current) != id {
			continue // another process has replaced and removed the copy
		}
		return saved, err
	}
}

// LoadPrevious reads the previous copy, which was also confirmed. It returns ErrNone when there is none.
func (s Store) LoadPrevious() (*Saved, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	id := s.target(previous)
	if id == "" {
		return nil, ErrNone
	}
	return s.load(id)
}

func (s Store) load(id string) (*Saved, error) {
	var m manifest
	text, err := os.ReadFile(s.path(id, manifestFile))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("policy saved for boot: %w", err)
	}
	if m.Format < 1 || m.Format > format {
		return nil, fmt.Errorf("policy saved for boot: %s has format %d, and this floodwall knows formats 1 to %d",
			s.path(id, manifestFile), m.Format, format)
	}
	saved := &Saved{format: m.Format, ID: id, File: m.Policy, Time: m.Saved, Options: m.Options, lists: map[string]string{}}
	if saved.Text, err = os.ReadFile(s.path(id, policyFile)); err == nil {
		err = intact(s.path(id, policyFile), m.SHA256)
	}
	if err != nil {
		return nil, fmt.Errorf("policy saved for boot: %s: %w", m.Policy, err)
	}
	for name, list := range m.Lists {
		saved.lists[name] = s.path(id, list.Copy)
		if err := intact(saved.lists[name], list.SHA256); err != nil {
			return nil, fmt.Errorf("policy saved for boot: %s: copy of %s: %w", m.Policy, name, err)
		}
	}
	return saved, nil
}

// intact checks the SHA-256 of a file in a copy.
func intact(path, sum string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	found, err := sumOf(context.Background(), file)
	if err == nil && found != sum {
		err = fmt.Errorf("%s is damaged: its SHA-256 is not the one that was saved with it", path)
	}
	return err
}

// Policy parses the saved policy, and replaces the files that it names by their copies. The policy's own name stays that of the operator's file. A
// copy of format 1 has only the files of address sets. For its other files the operator's files are used, as the version that made the copy did,
// until a policy is applied again.
func (s *Saved) Policy() (*policy.Policy, error) {
	p, err := policy.Parse(s.File, s.Text)
	if err != nil {
		return nil, err
	}
	for _, ref := range p.Files() {
		saved := s.lists[*ref.Name]
		if saved == "" && s.format == 1 {
			continue
		}
		if saved == "" {
			return nil, &policy.Error{
				File: s.File, Line: ref.Pos.Line, Col: ref.Pos.Col,
				Msg:  fmt.Sprintf("%s: %s was not saved for boot", ref.What, *ref.Name),
				Hint: "apply the policy again: this version saves it",
			}
		}
		*ref.Name = saved
	}
	return p, nil
}
