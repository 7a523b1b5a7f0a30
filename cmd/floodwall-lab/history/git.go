// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Tree is a working tree of git.
type Tree struct{ Dir string }

// git runs git in the tree.
func (t Tree) git(ctx context.Context, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", append([]string{"-C", t.Dir}, args...)...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// Head returns the commit of the tree, and its date.
func (t Tree) Head(ctx context.Context) (commit string, date time.Time, err error) {
	return t.commit(ctx, "HEAD")
}

func (t Tree) commit(ctx context.Context, revision string) (commit string, date time.Time, err error) {
	text, err := t.git(ctx, "show", "-s", "--format=%H %cI", revision)
	if err != nil {
		return "", date, err
	}
	commit, stamp, _ := strings.Cut(text, " ")
	if date, err = time.Parse(time.RFC3339, stamp); err != nil {
		return "", date, fmt.Errorf("date of commit %s: %w", commit, err)
	}
	return commit, date.UTC(), nil
}

// Changed lists the paths of the files that differ from the commit, except the paths in but.
func (t Tree) Changed(ctx context.Context, but ...string) (files []string, err error) {
	args := []string{"status", "--porcelain", "--", ":/"}
	for _, file := range but {
		path, err := filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		args = append(args, ":(exclude)"+path)
	}
	text, err := t.git(ctx, args...)
	for line := range strings.Lines(text) {
		files = append(files, strings.TrimSpace(line))
	}
	return files, err
}

// Bounds returns lines with the allowed counts, one for each commit that changed the bounds in a file of package guard.
func (t Tree) Bounds(ctx context.Context, file string) (lines []Line, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	text, err := t.git(ctx, "log", "--reverse", "--format=%H", "--", path)
	if err != nil {
		return nil, err
	}
	root, err := t.git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	inside, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	for _, revision := range strings.Fields(text) {
		l := Line{Kind: Allowed, Instructions: map[string]int{}}
		if l.Commit, l.Date, err = t.commit(ctx, revision); err != nil {
			return nil, err
		}
		content, err := t.git(ctx, "show", revision+":"+filepath.ToSlash(inside))
		if err != nil {
			return nil, err
		}
		// Kinds change over time, so the function does not use this program's own list of kinds.
		var bounds []struct {
			Kind string `json:"kind"`
			Most int    `json:"most"`
		}
		if err := json.Unmarshal([]byte(content), &bounds); err != nil {
			return nil, fmt.Errorf("bounds %s of commit %s: %w", inside, revision, err)
		}
		for _, b := range bounds {
			l.Instructions[b.Kind] = b.Most
		}
		lines = append(lines, l)
	}
	return lines, nil
}
