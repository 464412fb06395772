// instruments.cc: threads, files and memory of the engine in the performance schema.
//
// The engine tells of a thread as it begins and ends, has each operation on a file done within a call of
// ours, and tells of memory that is taken and given back. With the performance schema off it is not asked to.
//
// - **Threads** are registered as they come: `thread/varve/` and their name without `varve-`. Those of a
//   pool, which end with a number, are one instrument.
// - **Files** are bound to their descriptors, so an operation on one that is open looks for no name. One that
//   is removed or replaced while it is open is not measured any more: the performance schema forgets it with
//   its name, and would count for whatever comes next in its place.
// - Mutexes and latches are not told: they are not the server's, and a clock at each of millions of page
//   latches a second would cost more than it tells.

#include "instruments.h"

#include "server.h"

#include <mysql/psi/mysql_file.h>
#include <mysql/psi/mysql_memory.h>
#include <mysql/psi/mysql_thread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

namespace varve_plugin {

static const char *const CATEGORY= "varve";

static PSI_file_key data_file;
static PSI_file_key log_file;
static PSI_file_key other_file;

static PSI_memory_key buffer_pool;
static PSI_memory_key log_buffer;
static PSI_memory_key sort_buffers;

// What the instrument of a thread of this name is called.
static std::string instrument_of(std::string name)
{
  static const std::string prefix= "varve-";
  if (!name.compare(0, prefix.size(), prefix))
    name.erase(0, prefix.size());
  const size_t end= name.find_last_not_of("0123456789");
  if (end + 1 < name.size() && name[end] == '-')
    name.replace(end, std::string::npos, "-worker");
  for (char &c : name)
    if (c == '-')
      c= '_';
  return name;
}

static PSI_thread_key thread_key(const char *name)
{
  static std::mutex mutex;
  static std::map<std::string, PSI_thread_key> keys;
  const std::string instrument= instrument_of(name);
  const std::lock_guard<std::mutex> alone(mutex);
  const auto [at, is_new]= keys.emplace(instrument, 0);
  if (is_new)
  {
    PSI_thread_info info= {&at->second, at->first.c_str(), 0};
    mysql_thread_register(CATEGORY, &info, 1);
  }
  return at->second;
}

// Without its own variables of the server's library a thread can't be told why a path leads nowhere.
void begin_thread(const char *name)
{
  my_thread_init();
  PSI_thread *const thread= PSI_THREAD_CALL(new_thread)(thread_key(name), nullptr, 0);
  PSI_THREAD_CALL(set_thread_os_id)(thread);
  PSI_THREAD_CALL(set_thread)(thread);
}

void end_thread()
{
  my_thread_end();
}

// Tables' files are made under other names, and get theirs when they are whole.
static PSI_file_key file_key(const char *path)
{
  const char *const slash= strrchr(path, '/');
  const char *const name= slash ? slash + 1 : path;
  if (strstr(name, ".vdt") || !strcmp(name, "truncate.spare"))
    return data_file;
  return strstr(name, ".vlog") ? log_file : other_file;
}

static PSI_file_operation operation_of(varve_file_operation operation)
{
  switch (operation)
  {
  case VARVE_FILE_CREATE:
    return PSI_FILE_CREATE;
  case VARVE_FILE_OPEN:
    return PSI_FILE_OPEN;
  case VARVE_FILE_CLOSE:
    return PSI_FILE_CLOSE;
  case VARVE_FILE_READ:
    return PSI_FILE_READ;
  case VARVE_FILE_WRITE:
    return PSI_FILE_WRITE;
  case VARVE_FILE_SYNC:
    return PSI_FILE_SYNC;
  case VARVE_FILE_CHANGE_SIZE:
    return PSI_FILE_CHSIZE;
  case VARVE_FILE_REMOVE:
    return PSI_FILE_DELETE;
  case VARVE_FILE_RENAME:
    break;
  }
  return PSI_FILE_RENAME;
}

// Descriptors that are measured. Relaxed: who uses a descriptor has it from who has opened it.
constexpr int MOST_DESCRIPTORS= 32768;
static std::atomic<bool> is_measured[MOST_DESCRIPTORS];

// Their files' names, for what happens to these.
static std::mutex names_mutex;
static std::map<int, std::string> names;

static void begin_to_measure(int descriptor, const char *path)
{
  if (descriptor < 0 || descriptor >= MOST_DESCRIPTORS)
    return;
  const std::lock_guard<std::mutex> alone(names_mutex);
  names[descriptor]= path;
  is_measured[descriptor].store(true, std::memory_order_relaxed);
}

static void end_measuring(int descriptor)
{
  const std::lock_guard<std::mutex> alone(names_mutex);
  names.erase(descriptor);
  is_measured[descriptor].store(false, std::memory_order_relaxed);
}

// Who has a file of this name open has one that nobody knows any more.
static void end_measuring(const char *path)
{
  const std::lock_guard<std::mutex> alone(names_mutex);
  for (auto at= names.begin(); at != names.end();)
  {
    if (at->second != path)
    {
      ++at;
      continue;
    }
    is_measured[at->first].store(false, std::memory_order_relaxed);
    at= names.erase(at);
  }
}

static void rename_measured(const char *from, const char *to)
{
  const std::lock_guard<std::mutex> alone(names_mutex);
  for (auto &[descriptor, name] : names)
    if (name == from)
      name= to;
}

// The one that had the name is gone: two of the same name are not known there.
static void forget_file(const char *path)
{
  end_measuring(path);
  PSI_file_locker_state state;
  PSI_file_locker *const locker=
      PSI_FILE_CALL(get_thread_file_name_locker)(&state, file_key(path), PSI_FILE_DELETE, path, path);
  if (!locker)
    return;
  PSI_FILE_CALL(start_file_close_wait)(locker, __FILE__, __LINE__);
  PSI_FILE_CALL(end_file_close_wait)(locker, 0);
}

// Does it, and keeps the names.
static int carry_out(const varve_file_event *event, varve_file_call call, void *context)
{
  if (event->operation == VARVE_FILE_CLOSE)
    end_measuring(event->descriptor);
  const int done= call(context);
  if (done)
    return done;
  if (event->operation == VARVE_FILE_REMOVE)
    end_measuring(event->path);
  if (event->operation == VARVE_FILE_RENAME)
  {
    forget_file(event->to);
    rename_measured(event->path, event->to);
  }
  return done;
}

static void measure_file(const varve_file_event *event, varve_file_call call, void *context)
{
  const int descriptor= event->descriptor;
  const bool is_known= event->path || (descriptor < MOST_DESCRIPTORS &&
                                       is_measured[descriptor].load(std::memory_order_relaxed));
  if (!is_known)
  {
    call(context);
    return;
  }
  PSI_file_locker_state state;
  const PSI_file_operation operation= operation_of(event->operation);
  PSI_file_locker *const locker=
      event->path
          ? PSI_FILE_CALL(get_thread_file_name_locker)(&state, file_key(event->path), operation, event->path,
                                                       event)
          : PSI_FILE_CALL(get_thread_file_descriptor_locker)(&state, descriptor, operation);
  if (!locker)
  {
    carry_out(event, call, context);
    return;
  }
  switch (event->operation)
  {
  case VARVE_FILE_CREATE:
  case VARVE_FILE_OPEN:
  {
    PSI_FILE_CALL(start_file_open_wait)(locker, __FILE__, __LINE__);
    const int opened= carry_out(event, call, context);
    PSI_FILE_CALL(end_file_open_wait_and_bind_to_descriptor)(locker, opened);
    begin_to_measure(opened, event->path);
    return;
  }
  case VARVE_FILE_CLOSE:
  case VARVE_FILE_REMOVE:
    PSI_FILE_CALL(start_file_close_wait)(locker, __FILE__, __LINE__);
    PSI_FILE_CALL(end_file_close_wait)(locker, carry_out(event, call, context));
    return;
  case VARVE_FILE_RENAME:
  {
    PSI_FILE_CALL(start_file_wait)(locker, 0, __FILE__, __LINE__);
    const int failed= carry_out(event, call, context);
    PSI_FILE_CALL(end_file_rename_wait)(locker, event->path, event->to, failed);
    return;
  }
  case VARVE_FILE_READ:
  case VARVE_FILE_WRITE:
  case VARVE_FILE_SYNC:
  case VARVE_FILE_CHANGE_SIZE:
    PSI_FILE_CALL(start_file_wait)(locker, event->bytes, __FILE__, __LINE__);
    PSI_FILE_CALL(end_file_wait)(locker, carry_out(event, call, context) < 0 ? 0 : event->bytes);
    return;
  }
}

static PSI_memory_key memory_key(varve_memory what)
{
  switch (what)
  {
  case VARVE_MEMORY_BUFFER_POOL:
    return buffer_pool;
  case VARVE_MEMORY_LOG_BUFFER:
    return log_buffer;
  case VARVE_MEMORY_SORT_BUFFERS:
    break;
  }
  return sort_buffers;
}

// The instruments are global: no thread owns what another one may give back. No more is given back than was
// counted: an instrument may have been off when it was taken.
static void measure_memory(varve_memory what, int64_t bytes)
{
  static std::mutex mutex;
  static std::map<varve_memory, int64_t> counted;
  PSI_thread *owner= nullptr;
  const PSI_memory_key key= memory_key(what);
  const std::lock_guard<std::mutex> alone(mutex);
  if (bytes > 0)
  {
    if (PSI_MEMORY_CALL(memory_alloc)(key, size_t(bytes), &owner) == key)
      counted[what]+= bytes;
    return;
  }
  const int64_t less= std::min(-bytes, counted[what]);
  if (less > 0)
    PSI_MEMORY_CALL(memory_free)(key, size_t(less), owner);
  counted[what]-= less;
}

void register_instruments()
{
  static PSI_file_info files[]= {
      {&data_file, "varve_data_file", 0}, {&log_file, "varve_log_file", 0}, {&other_file, "varve_other_file", 0}};
  mysql_file_register(CATEGORY, files, int(std::size(files)));
  static PSI_memory_info memory[]= {{&buffer_pool, "buffer_pool", PSI_FLAG_GLOBAL},
                                    {&log_buffer, "log_buffer", PSI_FLAG_GLOBAL},
                                    {&sort_buffers, "sort_buffers", PSI_FLAG_GLOBAL}};
  mysql_memory_register(CATEGORY, memory, int(std::size(memory)));
  // Nobody gives keys away when the performance schema is off.
  if (!data_file && !buffer_pool)
    return;
  // The library stays when the plugin goes and comes back.
  static bool is_told= false;
  const varve_instruments instruments= {begin_thread, end_thread, measure_file, measure_memory};
  if (!is_told && varve_set_instruments(&instruments))
    sql_print_warning("VARVE: threads, files and memory are not measured: %s", varve_last_error());
  is_told= true;
}

}  // namespace varve_plugin
