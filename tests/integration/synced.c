/* What a power cut would leave of a directory.  For LD_PRELOAD.
 *
 * When a file in $SYNCED_FROM is synced, $SYNCED_TO/files has a copy of all of it before the call
 * returns.  When the directory is synced, $SYNCED_TO/names has the names that are in it: a file
 * whose name was never synced is gone, and one whose removal was not synced is there again.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(ok) do { if (!(ok)) { perror("synced.c: " #ok); abort(); } } while (0)

static void copy(int fd, const char *to, const char *name)
{
    char half[PATH_MAX], whole[PATH_MAX], block[1 << 16];
    off_t at = 0;
    ssize_t got;
    snprintf(half, sizeof half, "%s/half", to);
    snprintf(whole, sizeof whole, "%s/files/%s", to, name);
    int out = open(half, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(out >= 0);
    /* Not by a descriptor of our own: closing it would drop the locks that SQLite has. */
    for (; (got = pread(fd, block, sizeof block, at)) > 0; at += got)
        CHECK(write(out, block, got) == got);
    CHECK(got == 0);
    close(out);
    CHECK(rename(half, whole) == 0); /* a kill in the middle leaves the copy before */
}

static void list(const char *from, const char *to)
{
    char half[PATH_MAX], whole[PATH_MAX];
    snprintf(half, sizeof half, "%s/half", to);
    snprintf(whole, sizeof whole, "%s/names", to);
    FILE *out = fopen(half, "w");
    DIR *directory = opendir(from);
    CHECK(out && directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        fprintf(out, "%s\n", entry->d_name);
    closedir(directory);
    CHECK(fclose(out) == 0 && rename(half, whole) == 0);
}

static int synced(const char *call, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    const char *from = getenv("SYNCED_FROM"), *to = getenv("SYNCED_TO");
    char link[64], path[PATH_MAX] = "";
    struct stat about;
    int result = real(fd);
    if (result != 0 || !from || !to || fstat(fd, &about) != 0 || about.st_nlink == 0)
        return result;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    CHECK(readlink(link, path, sizeof path - 1) > 0);
    if (S_ISDIR(about.st_mode) && strcmp(path, from) == 0)
        list(from, to);
    size_t length = strlen(from);
    if (S_ISREG(about.st_mode) && strncmp(path, from, length) == 0 && path[length] == '/'
        && !strstr(path, "-shm")) /* which is made anew */
        copy(fd, to, path + length + 1);
    return result;
}

int fsync(int fd) { return synced("fsync", fd); }

int fdatasync(int fd) { return synced("fdatasync", fd); }
