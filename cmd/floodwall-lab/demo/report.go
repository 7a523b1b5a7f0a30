// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/daemon/attack"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// checkReportDir checks before the demonstration that the directory for the report exists or can be made. "" is valid.
func checkReportDir(dir string) error {
	if dir == "" {
		return nil
	}
	remedy := "name a directory, or a new one in a directory that exists"
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(dir))
	}
	if err != nil {
		return &Trouble{fmt.Sprintf("directory for the report: %v", err), remedy}
	}
	if !info.IsDir() {
		return &Trouble{fmt.Sprintf("directory for the report: %s is none", dir), remedy}
	}
	return nil
}

// keepReport writes the report and the packets of the attack to a directory that stays after the demonstration.
func (w *show) keepReport() {
	s := w.summary
	if s.Attack == nil {
		return
	}
	if err := w.writeReport(s.Attack); err != nil {
		s.Unkept = err.Error()
	}
}

func (w *show) writeReport(r *attack.Report) (err error) {
	dir, made, err := w.reportDir()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && made {
			_ = os.RemoveAll(dir) // half a report is useless
		}
	}()
	report := filepath.Join(dir, "attack-"+r.ID+".html")
	if err := w.write(report, r.WriteHTML); err != nil {
		return err
	}
	packets, err := w.watch.store.Capture(r.ID)
	file := ""
	switch {
	case err == nil:
		defer packets.Close()
		file = strings.TrimSuffix(report, ".html") + ".pcapng"
		err = w.write(file, func(out io.Writer) error { _, err := io.Copy(out, packets); return err })
	case errors.Is(err, attack.ErrUnknown): // there were no samples
		err = nil
	}
	if err != nil {
		return err
	}
	w.summary.Report, w.summary.Packets = report, file
	if made {
		return os.Lchown(dir, w.options.Owner.UID, w.options.Owner.GID)
	}
	return nil
}

// reportDir returns the directory for the report. The result made is true if reportDir has made the directory.
func (w *show) reportDir() (dir string, made bool, err error) {
	if dir = w.options.Report; dir == "" {
		dir, err = os.MkdirTemp("", "floodwall-demo-")
		return dir, err == nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", false, err
	}
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return dir, false, nil
	}
	return dir, err == nil, err
}

// write writes a file for the owner of the report. It follows no link and replaces no file.
func (w *show) write(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Chown(w.options.Owner.UID, w.options.Owner.GID), f.Close()); err != nil {
		_ = os.Remove(name) // half a file is useless
	}
	return err
}

// attackText returns a short form of the report.
func (s *Summary) attackText(width int) string {
	r := s.Attack
	var out strings.Builder
	line := func(label, format string, args ...any) {
		const indent = 12
		text := wrap(fmt.Sprintf(format, args...), width-indent)
		out.WriteString(fmt.Sprintf("  %-*s", indent-2, label) + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+strings.Repeat(" ", indent)) + "\n")
	}
	out.WriteString("The attack, as the daemon saw it\n")
	end := "its end was not seen in time"
	if r.Ended != nil {
		end = "over after " + r.Lasted()
	}
	line("began", "%s, %s", r.Started.Local().Format(time.DateTime), end)
	line("peak", "%s, %.2f Gbit/s; above %.3f Mpps it is an attack", mpps(r.Peak.Packets), r.Peak.Bits/1e9, r.Bound/1e6)
	line("kinds", "%s", s.kinds())
	line("dropped", "%s packets%s", wording.Count(r.Dropped.Packets), droppedBy(r.Reasons))
	line("passed", "%s packets, those of the clients included", wording.Count(r.Passed.Packets))
	if s.Report != "" {
		line("report", "%s", s.Report)
	}
	if s.Packets != "" {
		line("packets", "%s", s.Packets)
	}
	return out.String()
}

func (s *Summary) kinds() string {
	var kinds []string
	for _, v := range s.Attack.Vectors {
		kinds = append(kinds, fmt.Sprintf("%s %s", v.Name, percent(v.Share)))
	}
	if kinds == nil {
		return "not known, as there were no samples"
	}
	return strings.Join(kinds, ", ")
}

// droppedBy returns the names of the rules and checks with the most drops.
func droppedBy(reasons []attack.Reason) string {
	var named []string
	for _, r := range reasons {
		if r.Verdict == "drop" && r.Packets > 0 && len(named) < topDrops {
			named = append(named, fmt.Sprintf("%s by %s", wording.Count(r.Packets), r.Name))
		}
	}
	if named == nil {
		return ""
	}
	return ": " + strings.Join(named, ", ")
}
