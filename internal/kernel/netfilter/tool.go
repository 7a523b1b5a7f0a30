// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// toolLimit is the longest time that a tool may run. nft 1.0 needs some ten seconds for a million elements.
const toolLimit = 2 * time.Minute

// OutputLimit is how long the output of a tool may take to come after its end. On a busy machine the reader of a pipe can wait for
// a CPU for more than a second.
const OutputLimit = 20 * time.Second

// tool is a program of the system.
type tool struct {
	name, path string
	broken     error // why the tool does not run; nil if no reason is known
}

// MissingError says that a tool is not installed.
type MissingError struct{ Tool, Package string }

func (e *MissingError) Error() string { return fmt.Sprintf("the program %s is not installed", e.Tool) }

// Hint is the remedy.
func (e *MissingError) Hint() string {
	return fmt.Sprintf("it is in the package %s of Debian and Ubuntu: apt install %[1]s", e.Package)
}

// adminDirs are the directories of administrators' programs, which are not in every user's path.
var adminDirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// find looks for a program in the path and in adminDirs.
func find(name, pkg string) (tool, error) {
	if path, err := exec.LookPath(name); err == nil {
		return tool{name: name, path: path}, nil
	}
	for _, dir := range adminDirs {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return tool{name: name, path: path}, nil
		}
	}
	return tool{}, &MissingError{Tool: name, Package: pkg}
}

// run runs the tool with the given input and returns its output. The input is complete before the tool starts. If the process died while it writes
// the input to a pipe, the tool could execute an incomplete script.
func (t tool) run(ctx context.Context, input string, args ...string) (string, error) {
	if t.broken != nil {
		return "", t.broken
	}
	stdin, err := memory(input)
	if err != nil {
		return "", fmt.Errorf("input of %s: %w", t.name, err)
	}
	defer stdin.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, toolLimit, fmt.Errorf("no end after %v", toolLimit))
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, t.path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANG=C", "TZ=UTC") // nft writes and reads times in the time zone of its process
	cmd.WaitDelay = OutputLimit
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", newToolError(t.name, errs.String(), input, err)
	}
	return out.String(), nil
}

// memory returns a file that exists only in memory.
func memory(content string) (*os.File, error) {
	fd, err := unix.MemfdCreate("floodwall", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "floodwall")
	if _, err = file.WriteString(content); err == nil {
		_, err = file.Seek(0, 0)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("writing a file in memory: %w", err)
	}
	return file, nil
}

// ToolError is an error that a tool reported.
type ToolError struct {
	Tool    string
	Message string // the tool's message, as one line
	Line    string // the input line to which the message refers, or ""
	Err     error  // the exit status
}

func (e *ToolError) Error() string {
	if e.Line == "" {
		return fmt.Sprintf("%s: %s", e.Tool, e.Message)
	}
	return fmt.Sprintf("%s: %s, in the line %q", e.Tool, e.Message, e.Line)
}

// Unwrap returns the exit status.
func (e *ToolError) Unwrap() error { return e.Err }

// Unread reports whether an error says that a program is missing or has failed. The content of the kernel is then unknown.
func Unread(err error) bool {
	return errors.As(err, new(*ToolError)) || errors.As(err, new(*MissingError))
}

// IsFull reports whether the kernel refused an entry because the set is full. In nftables expired entries take space until the kernel removes them,
// about every second.
func IsFull(err error) bool {
	var e *ToolError
	return errors.As(err, &e) && (strings.Contains(e.Message, "Too many open files in system") || strings.Contains(e.Message, "is full"))
}

// remedies has hints for parts of the tools' messages. The first match is used.
var remedies = []struct{ message, hint string }{
	{"permitted", "run it as root, or with the capability CAP_NET_ADMIN"},
	{"ermission denied", "run it as root, or with the capability CAP_NET_ADMIN"},
	{"xtables lock", "another program holds the lock of iptables; try again when it has ended"},
	{"use 'nft' tool", "rules in this table were made by nft, and iptables cannot read them; use the target nftables"},
	{"Too many open files in system", "the set is full: give it a larger max in the policy"},
	{"is full", "the set is full: give it a larger max in the policy"},
	{"not supported", "the kernel lacks a module for what this line asks; floodwall doctor lists what it has"},
	{"Extension", "the kernel or iptables lacks this extension; use the target nftables"},
	{"No such file or directory", "a device, set or chain of it does not exist, or the kernel lacks a module for it"},
	{"syntax error", "this version of the tool does not know the form; a newer one may"},
}

// Hint is the remedy, or "".
func (e *ToolError) Hint() string {
	for _, r := range remedies {
		if strings.Contains(e.Message, r.message) {
			return r.hint
		}
	}
	return ""
}

// place matches the form in which nft, iptables-restore and ipset name a line of their input.
var place = wording.Regexp(`/dev/stdin:(\d+):(\d+)-\d+: |(?:at )?line:? (\d+)(?: failed)?:? ?`)

// newToolError returns an error from the error output of a tool.
func newToolError(name, stderr, input string, err error) *ToolError {
	message := complaint(stderr)
	e := &ToolError{Tool: name, Message: message, Err: err}
	if at := place().FindStringSubmatch(stderr); at != nil {
		number, _ := strconv.Atoi(at[1] + at[3])
		column, _ := strconv.Atoi(at[2])
		e.Line = excerpt(nth(input, number), column)
	}
	var exit *exec.ExitError
	if message == "" || !errors.As(err, &exit) {
		e.Message = strings.TrimSuffix(err.Error()+": "+message, ": ")
	}
	return e
}

// complaint returns the first error in the error output of a tool, without the position and the tool's name.
func complaint(stderr string) string {
	lines := strings.FieldsFunc(stderr, func(r rune) bool { return r == '\n' })
	var parts []string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if message, ok := strings.CutPrefix(place().ReplaceAllString(line, ""), "Error: "); ok {
			return message
		}
		line = strings.TrimSpace(speaker().ReplaceAllString(place().ReplaceAllString(line, ""), ""))
		if line == "" || line[0] == '#' || strings.HasPrefix(line, "Try `") || line == "Error occurred" {
			continue
		}
		parts = append(parts, line)
	}
	return strings.Join(parts, " ")
}

// speaker matches the name of the tool at the start of its messages.
var speaker = wording.Regexp(`^(?:ip6?tables(?:-\w+)*|ipset|nft)(?: v[\w.]+(?: \([\w-]+\))?)?: ?(?:Error in )?`)

// nth returns a line of a text, counted from 1.
func nth(text string, number int) string {
	for ; number > 1; number-- {
		var ok bool
		if _, text, ok = strings.Cut(text, "\n"); !ok {
			return ""
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// excerpt shortens a line to the width of a terminal. The result contains the given column, unless that is 0.
func excerpt(line string, column int) string {
	const before, longest = 60, 160
	if len(line) > longest && column > before && column <= len(line) {
		line = strings.ToValidUTF8(line[column-before:], "")
	}
	return shorten(strings.TrimSpace(line), longest)
}

// shorten truncates a text to at most `most` bytes, at the boundary of a UTF-8 character.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
