package prefix

// links hands out ids from 1 to most and keeps each id that is out in one list. Its memory comes in pages, is never more
// than most ids need, and is not given back.
type links struct {
	pages []*[linkPage]link
	most  int    // ids that may be out at once
	made  int    // ids that have ever been out
	out   int    // ids that are out
	free  uint32 // the first id that came back; link.older leads to the next
}

// link is what one id has; 0 is no id.
type link struct{ newer, older uint32 }

// list is the ends of a list; the zero list is empty.
type list struct{ newest, oldest uint32 }

const (
	linkPage = 1024
	linkSize = 8
)

func newLinks(most int) links {
	return links{most: most, pages: make([]*[linkPage]link, 0, pages(most, linkPage))}
}

// pages is how many pages of size hold n things.
func pages(n, size int) int { return (n + size - 1) / size }

func (l *links) at(id uint32) *link { return &l.pages[(id-1)/linkPage][(id-1)%linkPage] }

// spare is how many ids can still be taken.
func (l *links) spare() int { return l.most - l.out }

// take returns an id that is in no list. The caller has looked that there is one to spare.
func (l *links) take() uint32 {
	l.out++
	if id := l.free; id != 0 {
		l.free = l.at(id).older
		return id
	}
	if l.made == len(l.pages)*linkPage {
		l.pages = append(l.pages, new([linkPage]link))
	}
	l.made++
	return uint32(l.made)
}

// give takes back an id that is in no list.
func (l *links) give(id uint32) {
	l.out--
	*l.at(id) = link{older: l.free}
	l.free = id
}

// insert puts id, which is in no list, into the list behind newer as the next older one; newer 0 makes it the newest.
func (l *links) insert(in *list, id, newer uint32) {
	older := in.newest
	if newer != 0 {
		older = l.at(newer).older
		l.at(newer).older = id
	} else {
		in.newest = id
	}
	if older != 0 {
		l.at(older).newer = id
	} else {
		in.oldest = id
	}
	*l.at(id) = link{newer: newer, older: older}
}

// remove takes id out of the list.
func (l *links) remove(in *list, id uint32) {
	is := *l.at(id)
	if is.newer != 0 {
		l.at(is.newer).older = is.older
	} else {
		in.newest = is.older
	}
	if is.older != 0 {
		l.at(is.older).newer = is.newer
	} else {
		in.oldest = is.newer
	}
}

// move puts id, which is in the list, behind newer, as insert does.
func (l *links) move(in *list, id, newer uint32) {
	if l.at(id).newer == newer {
		return
	}
	l.remove(in, id)
	l.insert(in, id, newer)
}
