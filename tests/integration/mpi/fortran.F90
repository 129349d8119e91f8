! The Fortran entry points, in three ways: -DWAY_MPIFH, -DWAY_MPI, -DWAY_F08. Prints "fortran validated" on rank 0.
program fortran
#ifdef WAY_F08
  use mpi_f08
#define COMM_TYPE type(MPI_Comm)
#define REQUEST_TYPE type(MPI_Request)
#define TYPE_TYPE type(MPI_Datatype)
#else
#ifdef WAY_MPI
  use mpi
#endif
#define COMM_TYPE integer
#define REQUEST_TYPE integer
#define TYPE_TYPE integer
#endif
  implicit none
#ifdef WAY_MPIFH
  include 'mpif.h'
#endif
  integer, parameter :: n = 1000
  integer :: rank, ranks, ierr, i, r, failures, total, root
  COMM_TYPE :: half
  REQUEST_TYPE :: request
  TYPE_TYPE :: strided
  double precision :: x(n), y(n)
  real :: sx(7), sy(7)
  complex(kind(1d0)) :: cx(5), cy(5)
  integer :: ix(n), iy(n), blocks(64)
  integer, allocatable :: all(:), parts(:)
  logical :: lx(3), ly(3)
  character(len=40) :: text

  failures = 0
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)

  x = [(dble(i + rank), i = 1, n)]
  call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call check(ierr == MPI_SUCCESS, 'ierr')
  call check(all_near(y), 'sum of doubles')
  y = x
  call MPI_Allreduce(MPI_IN_PLACE, y, n, MPI_REAL8, MPI_SUM, MPI_COMM_WORLD, ierr)
  call check(all_near(y), 'sum in place')

  sx = real(rank)
  call MPI_Allreduce(sx, sy, 7, MPI_REAL, MPI_MAX, MPI_COMM_WORLD, ierr)
  call check(sy(1) == ranks - 1 .and. sy(7) == ranks - 1, 'maximum of reals')
  cx = cmplx(rank, 1, kind(1d0))
  call MPI_Allreduce(cx, cy, 5, MPI_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD, ierr)
  call check(cy(5) == cmplx(ranks * (ranks - 1) / 2, ranks, kind(1d0)), 'sum of complex')
  lx = [rank == 0, .true., .false.]
  call MPI_Allreduce(lx, ly, 3, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierr)
  call check(ly(1) .and. ly(2) .and. .not. ly(3), 'or of logicals')
  call MPI_Allreduce(lx, ly, 3, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
  call check((ly(1) .eqv. ranks == 1) .and. ly(2) .and. .not. ly(3), 'and of logicals')

  do root = 0, ranks - 1
    ix = -1
    if (rank == root) ix = [(i * 3 + root, i = 1, n)]
    call MPI_Bcast(ix, n, MPI_INTEGER, root, MPI_COMM_WORLD, ierr)
    call check(all_equal(ix, root), 'broadcast')
  end do
  text = ''
  if (rank == 0) text = 'forty characters from rank zero, exactly'
  call MPI_Bcast(text, 40, MPI_CHARACTER, 0, MPI_COMM_WORLD, ierr)
  call check(text == 'forty characters from rank zero, exactly', 'broadcast of characters')
  ! Every other element on odd ranks, all of them packed on even ones.
  call MPI_Type_vector(n / 2, 1, 2, MPI_INTEGER, strided, ierr)
  call MPI_Type_commit(strided, ierr)
  ix = -1
  if (rank == 0) ix = [(i, i = 1, n)]
  if (mod(rank, 2) == 0) call MPI_Bcast(ix, n / 2, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  if (mod(rank, 2) == 1) call MPI_Bcast(ix, 1, strided, 0, MPI_COMM_WORLD, ierr)
  if (mod(rank, 2) == 1) call check(ix(1) == 1 .and. ix(3) == 2 .and. ix(n - 1) == n / 2 .and. ix(2) == -1, 'strided')
  call MPI_Type_free(strided, ierr)

  allocate (all(2 * ranks), parts(4 * ranks))
  ix(1:2) = [rank, rank * 10]
  call MPI_Allgather(ix, 2, MPI_INTEGER, all, 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  do r = 0, ranks - 1
    call check(all(2 * r + 1) == r .and. all(2 * r + 2) == r * 10, 'allgather')
  end do
  all = -1
  all(2 * rank + 1) = rank
  all(2 * rank + 2) = rank * 10
#ifdef WAY_F08
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 2, MPI_INTEGER, MPI_COMM_WORLD)
#else
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 2, MPI_INTEGER, MPI_COMM_WORLD, ierr)
#endif
  do r = 0, ranks - 1
    call check(all(2 * r + 1) == r .and. all(2 * r + 2) == r * 10, 'allgather in place')
  end do

  parts = [(i + rank, i = 1, 4 * ranks)]
  call MPI_Reduce_scatter_block(parts, iy, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call check(iy(1) == ranks * (4 * rank + 1) + ranks * (ranks - 1) / 2, 'reduce_scatter_block')
  blocks = 4
  call MPI_Reduce_scatter(MPI_IN_PLACE, parts, blocks, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  call check(parts(4) == ranks * (4 * rank + 4) + ranks * (ranks - 1) / 2, 'reduce_scatter in place')

  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, half, ierr)
  call MPI_Allreduce(1, i, 1, MPI_INTEGER, MPI_SUM, half, ierr)
  call check(i == (ranks + 1 - mod(rank, 2)) / 2, 'sum over half the ranks')
  call MPI_Comm_free(half, ierr)
  call MPI_Iallreduce(ix, iy, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call check(iy(1) == ranks * (ranks - 1) / 2, 'iallreduce')

  call MPI_Allreduce(failures, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. total == 0) print '(a,i0,a)', 'fortran validated on ', ranks, ' ranks'
  call MPI_Finalize(ierr)
  if (total /= 0) stop 1

contains
  subroutine check(right, what)
    logical, intent(in) :: right
    character(len=*), intent(in) :: what
    if (right) return
    failures = failures + 1
    print '(a,i0,2a)', 'FAILED rank ', rank, ': ', what
  end subroutine
  logical function all_near(values)
    double precision, intent(in) :: values(n)
    integer :: k
    all_near = .true.
    do k = 1, n
      all_near = all_near .and. values(k) == dble(ranks) * k + dble(ranks * (ranks - 1) / 2)
    end do
  end function
  logical function all_equal(values, from)
    integer, intent(in) :: values(n), from
    integer :: k
    all_equal = .true.
    do k = 1, n
      all_equal = all_equal .and. values(k) == k * 3 + from
    end do
  end function
end program
