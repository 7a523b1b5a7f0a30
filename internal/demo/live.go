package demo

import (
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"
)

// live shows a demonstration as a picture that is drawn anew at every moment.
//
// It takes no keys and changes no setting of the terminal, so that Ctrl-C stays the signal that it is, and a process
// that is killed leaves the terminal as it was.
type live struct {
	program *tea.Program
	done    chan error
}

func newLive(out *os.File) *live {
	l := &live{done: make(chan error, 1)}
	l.program = tea.NewProgram(newPicture(lipgloss.NewRenderer(out), Width(out)), tea.WithOutput(out), tea.WithInput(nil),
		tea.WithoutSignalHandler(), tea.WithoutBracketedPaste(), tea.WithFPS(10))
	go func() {
		_, err := l.program.Run()
		l.done <- err
	}()
	return l
}

func (l *live) Interval() time.Duration { return 200 * time.Millisecond }

// What the picture is told.
type (
	policyMsg string
	noteMsg   string
	phaseMsg  int
	endMsg    struct{}
)

func (l *live) Policy(text string)         { l.program.Send(policyMsg(text)) }
func (l *live) Note(text string)           { l.program.Send(noteMsg(text)) }
func (l *live) Phase(number int, _ string) { l.program.Send(phaseMsg(number)) }
func (l *live) Moment(m Moment)            { l.program.Send(m) }

// Close takes the picture away: what remains is the summary.
func (l *live) Close() error {
	l.program.Send(endMsg{})
	return <-l.done
}

// Init leaves the cursor visible: hiding it is all that could outlive a kill.
func (p *picture) Init() tea.Cmd { return tea.ShowCursor }

// Update takes in what happened.
func (p *picture) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch m := msg.(type) {
	case tea.WindowSizeMsg:
		p.width, p.height = m.Width, m.Height
	case policyMsg:
		p.policy = string(m)
	case noteMsg:
		p.note = string(m)
	case phaseMsg:
		p.begin(int(m))
	case Moment:
		p.add(m)
	case endMsg:
		p.ended = true
		return p, tea.Quit
	}
	return p, nil
}
